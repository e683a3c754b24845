from .attention import CausalSelfAttention as CausalSelfAttention
from .layers import Linear as Linear
