"""Notices of the libraries that say nothing about this program, silenced where they arise.

Tests turn warnings into errors on purpose, so each exception is named here with its reason.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from transformers.utils import logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Load or write weights without drawing bars into a report."""
    before = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            logging.enable_progress_bar()


@contextmanager
def peft_notices_ignored() -> Iterator[None]:
    """Let peft 0.21 read an attribute that transformers 5.24 has renamed; both names work."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="`is_gradient_checkpointing` is deprecated", category=FutureWarning
        )
        yield


@contextmanager
def inductor_notices_ignored() -> Iterator[None]:
    """Let torch 2.13's compiler be imported: it uses what the same torch calls deprecated."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore",
            message="`torch.jit.script(_method)?` is deprecated",
            category=DeprecationWarning,
        )
        yield
