"""A Hugging Face model that is on disk, with the student's attention in place of its own.

The queries and keys of every layer are the model's. What it makes of them, and so all that later layers see, is the
student's: a mistake shows in the first layer and has changed everything in the last.
"""

from pathlib import Path
from typing import Any

import click
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cs336_kit.lab.bad_input import BadInput
from cs336_kit.lab.student import Student

NAME = "student"

# Parts of attention that some models have and `run_scaled_dot_product_attention` has not.
EXTRAS = ("position_bias", "s_aux", "softcap")


class Model:
    """A model with all its layers and heads; nothing is downloaded or unpickled, and no code of the model's is run.

    Args:
        path: the folder that `save_pretrained` wrote: config, weights as safetensors, tokenizer.
        student: whose attention it gets.

    Raises:
        BadInput: transformers is not installed, or there is no such model that can be used.
    """

    def __init__(self, path: Path, student: Student) -> None:
        if not (path / "config.json").is_file():
            raise BadInput(f"{path} is not a folder with a config.json: give one that save_pretrained() wrote")
        # Without its files a tokenizer would be made that knows no word.
        if not any((*path.glob("tokenizer*"), *path.glob("vocab*"))):
            raise BadInput(f"{path} does not have a tokenizer: save the model's own beside it, with save_pretrained()")
        try:
            import transformers
        except ImportError:
            raise BadInput("--model needs the package transformers: uv sync --extra models") from None
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        transformers.AttentionInterface.register(NAME, self._attend)
        try:
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
            self._model, loaded = transformers.AutoModel.from_pretrained(
                path,
                local_files_only=True,
                use_safetensors=True,
                dtype=torch.float32,
                attn_implementation=NAME,
                output_loading_info=True,
            )
        except Exception as error:  # of any kind: configurations are read by the code of hundreds of models
            raise BadInput(f"{path} cannot be used as a model: {_first_line(error)}") from None
        # Checkpoints are often without a pooler, which stands behind all attention.
        if missing := sorted(key for key in loaded["missing_keys"] if "pooler" not in key):
            raise BadInput(f"{path} lacks the weights {missing[0]} that its config.json asks for: save it anew")
        config = self._model.config.get_text_config()
        if config.is_encoder_decoder:
            raise BadInput(f"{path} has an encoder and a decoder: give a model with one of them, as BERT or GPT-2 is")
        self._student = student
        self._longest = getattr(config, "max_position_embeddings", None)
        self.layers: int = config.num_hidden_layers
        self.heads = [str(head) for head in range(config.num_attention_heads)]
        self.causal = any(getattr(module, "is_causal", False) for module in self._model.modules())

    def tokens(self, text: str) -> list[str]:
        """Pieces of the text, and what the tokenizer puts around it, as "[CLS]"."""
        encoding = self._tokenizer(text, return_offsets_mapping=True)
        names = self._tokenizer.convert_ids_to_tokens(encoding["input_ids"])
        pieces = (text[start:end].strip() for start, end in encoding["offset_mapping"])
        return [piece or name for piece, name in zip(pieces, names, strict=True)]

    def notes(self, text: str) -> list[str]:
        """That the mask is the reader's choice, whatever the model has."""
        return ["Each layer uses your attention, with the mask that is named here in place of the model's own."]

    def weights(
        self, text: str, mask: Bool[Tensor, "queries keys"] | None
    ) -> Float[Tensor, "layers heads queries keys"]:
        """Run the model once and keep what the student's attention gave each layer."""
        ids = self._tokenizer(text, return_tensors="pt")["input_ids"]
        if self._longest is not None and ids.shape[-1] > self._longest:
            raise BadInput(f"the text has {ids.shape[-1]:,} tokens, the model reads {self._longest:,}: shorten it")
        self._mask = mask
        self._found: list[Tensor] = []
        try:
            with torch.no_grad():
                self._model(input_ids=ids)
        except click.ClickException:
            raise
        except Exception as error:
            raise BadInput(f"the model cannot read this text: {_first_line(error)}") from None
        if len(self._found) != self.layers:
            raise BadInput("this kind of model does not let its attention be replaced: try BERT or GPT-2")
        return torch.stack(self._found)

    def _attend(
        self,
        module: torch.nn.Module,
        query: Float[Tensor, "1 heads queries d_k"],
        key: Float[Tensor, "1 groups keys d_k"],
        value: Float[Tensor, "1 groups keys d_v"],
        attention_mask: Tensor | None,
        scaling: float | None = None,
        **extras: Any,
    ) -> tuple[Float[Tensor, "1 queries heads d_v"], None]:
        """The signature of `transformers.AttentionInterface`."""
        if extra := next((name for name in EXTRAS if extras.get(name) is not None), None):
            raise BadInput(f"this model's attention has a part that yours has not ({extra}): try BERT or GPT-2")
        (Q,), (K,), (V,) = query, key, value
        K, V = (x.repeat_interleave(len(Q) // len(x), dim=0) for x in (K, V))
        if scaling is not None:
            Q = Q * (scaling * Q.shape[-1] ** 0.5)  # the student divides by √d_k
        self._found.append(self._student.weights(Q, K, self._mask))
        return self._student.attention(Q, K, V, self._mask).transpose(0, 1)[None], None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
