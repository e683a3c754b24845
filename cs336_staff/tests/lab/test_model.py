"""`cs336 show --model`: a Hugging Face model on disk whose layers use the student's attention."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cs336_kit.lab.huggingface import Model
from cs336_kit.lab.student import Student
from cs336_staff.tests.lab.conftest import Lab
from cs336_staff.tools.student import ROOT

pytestmark = pytest.mark.slow

WORDS = ["[UNK]", "[CLS]", "[SEP]", "the", "bank", "of", "river", "was", "steep", "##s"]
TEXT = "The bank of the rivers was steep!"
TOKENS = ["[CLS]", "The", "bank", "of", "the", "river", "s", "was", "steep", "!", "[SEP]"]


MODELS = {
    "bert": {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32}
    | {"max_position_embeddings": 32},
    # Scores divided by √d_k and by the number of the layer.
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
    | {"scale_attn_by_inverse_layer_idx": True},
    # Four heads of queries share two of keys.
    "llama": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    | {"num_key_value_heads": 2},
    "t5": {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_layers": 1, "num_heads": 4},
}
CAUSAL = torch.ones(len(TOKENS), len(TOKENS), dtype=torch.bool).tril()


def save(name: str, folder: Path) -> None:
    """A small model with large random weights, so that its patterns differ, and a tokenizer of a few words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model(name, vocab_size=len(WORDS), **MODELS[name]))
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed" not in parameter_name:
                parameter.mul_(30)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)  # noqa: S106


@pytest.mark.parametrize(("name", "causal"), [("bert", False), ("gpt2", True), ("llama", True)])
def test_the_weights_are_the_models_own_when_attention_is_right(name: str, causal: bool, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    save(name, tmp_path)
    model = Model(tmp_path, Student(ROOT))
    assert model.causal == causal
    assert model.tokens(TEXT) == TOKENS
    ids = AutoTokenizer.from_pretrained(tmp_path)(TEXT, return_tensors="pt")["input_ids"]
    own = AutoModel.from_pretrained(tmp_path, attn_implementation="eager")(ids, output_attentions=True).attentions
    expected = torch.cat(own)
    assert expected.std() > 0.05
    torch.testing.assert_close(model.weights(TEXT, CAUSAL if causal else None), expected, atol=1e-5, rtol=0)


def test_a_causal_mask_on_a_model_that_has_none(tmp_path: Path) -> None:
    save("bert", tmp_path)
    model = Model(tmp_path, Student(ROOT))
    assert model.weights(TEXT, CAUSAL).triu(1).abs().max() == 0.0
    assert (model.layers, model.heads) == (3, ["0", "1", "2", "3"])


def test_the_command(lab: Lab, tmp_path: Path) -> None:
    save("gpt2", tmp_path / "gpt2")
    result = lab("show", "--model", "gpt2", "--layer", "1", "--head", "0", TEXT)
    rows = [" ".join(line.split()) for line in result.output.splitlines()]
    assert rows[0] == "layer 1, head 0, causal"
    assert rows[2] == "0 [CLS] 100 · · · · · · · · · ·"
    assert "Each layer uses your attention, with the mask that is named here" in result.output
    assert lab("show", "--model", "gpt2", "-o", "page.html", TEXT).exit_code == 0


def broken(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no weights")


def resized(folder: Path) -> None:
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"hidden_size": 16', '"hidden_size": 32'))


def deepened(folder: Path) -> None:
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"num_hidden_layers": 3', '"num_hidden_layers": 4'))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def no_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


@pytest.mark.parametrize(
    ("name", "harm", "arguments", "message"),
    [
        ("bert", None, ["--head", "4"], "there is no head 4: choose one of 0, 1, 2, 3"),
        ("bert", None, ["--layer", "3"], "there is no layer 3: choose one from 0 to 2"),
        ("bert", None, ["river"] * 40, "the text has 42 tokens, the model reads 32: shorten it"),
        ("bert", broken, [], "bert cannot be used as a model: "),
        ("bert", resized, [], "bert cannot be used as a model: "),
        ("bert", pickled, [], "bert cannot be used as a model: "),
        ("bert", no_tokenizer, [], "bert does not have a tokenizer: save the model's own beside it, with save_"),
        ("bert", deepened, [], "bert lacks the weights encoder.layer.3."),
        ("t5", None, [], "t5 has an encoder and a decoder: give a model with one of them, as BERT or GPT-2 is"),
    ],
)
def test_a_model_that_cannot_be_used(
    lab: Lab, tmp_path: Path, name: str, harm: Callable[[Path], None] | None, arguments: list[str], message: str
) -> None:
    save(name, tmp_path / name)
    if harm is not None:
        harm(tmp_path / name)
    result = lab("show", "--model", name, "-o", "page.html", *arguments)
    assert result.output.startswith(f"Error: {message}")
    assert result.output.count("\n") == 1
    assert result.exit_code == 2
    assert not (tmp_path / "page.html").exists()
