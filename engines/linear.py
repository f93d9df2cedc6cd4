"""One linear map of a layer: the unit in which weights are stored, adapted and quantized."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight matrix [outputs, inputs], or `copies` of it of which a token uses `active`."""

    name: str
    inputs: int
    outputs: int
    bias: bool = False
    copies: int = 1
    active: int = 1
    module: bool = True
    """An `nn.Linear` of its own, that adapters and quantizers find: not experts nor routers."""

    @property
    def weights(self) -> int:
        """Values of one copy of the matrix, without its bias."""
        return self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Values stored: all copies, biases included."""
        return self.copies * (self.weights + self.outputs * self.bias)

    def copies_read(self, tokens: int) -> float:
        """Copies that a step of so many tokens reads, on average under uniform routing.

        Each token picks `active` of `copies` at random, so that one is missed by all of them with
        probability (1 - active / copies) ** tokens. Skewed routing reads fewer, never fewer than
        `active`.
        """
        return self.copies * (1 - (1 - self.active / self.copies) ** tokens)
