"""Text from tokens: whole characters only, nothing lost, stop strings never shown."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.serving.text import IdsAsText, StopStrings, TextStream
from fixtures.scripted_engine import ByteTokenizer

THAI = "น้ำแข็ง กินข้าวไหม 🙂 ผู้ใหญ่"


def pieces_of(tokenizer, ids):
    stream = TextStream(tokenizer)
    return [*(stream.push(token) for token in ids), stream.finish()]


@pytest.fixture(scope="module")
def thai_tokenizer():
    """A byte-level BPE vocabulary whose tokens begin and end inside Thai letters."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<end>"],
        show_progress=False,
    )
    trained.train_from_iterator([THAI] * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=trained, eos_token="<end>")


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_the_pieces_joined_are_the_text(text):
    pieces = pieces_of(ByteTokenizer(), list(text.encode()))
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)


@given(ids=st.lists(st.integers(0, 255), max_size=30))
def test_bytes_that_are_no_text_come_out_as_a_tokenizer_shows_them(ids):
    assert "".join(pieces_of(ByteTokenizer(), ids)) == ByteTokenizer().decode(ids)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_real_vocabulary_streams_what_it_decodes(thai_tokenizer, data):
    ids = data.draw(st.lists(st.integers(0, len(thai_tokenizer) - 1), max_size=25))
    whole = thai_tokenizer.decode(ids, skip_special_tokens=True)
    assert "".join(pieces_of(thai_tokenizer, ids)) == whole


def test_thai_is_shown_letter_by_letter(thai_tokenizer):
    pieces = pieces_of(thai_tokenizer, thai_tokenizer.encode(THAI))
    assert "".join(pieces) == THAI
    assert not any("\ufffd" in piece for piece in pieces)


def test_decoding_each_token_alone_would_break_letters():
    """The planted fault that the stream is there to prevent."""
    alone = "".join(ByteTokenizer().decode([byte]) for byte in THAI.encode())
    assert "\ufffd" in alone


def shown(pieces, stops):
    stop = StopStrings(stops)
    text = ""
    for piece in pieces:
        text += stop.push(piece)
        if stop.found:
            return text
    return text + stop.finish()


@given(
    text=st.text("abc", max_size=30),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=10),
)
def test_a_stop_string_ends_the_text_however_it_is_cut(text, stops, cuts):
    ends = sorted({*(min(cut, len(text)) for cut in cuts), 0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(ends)]
    starts = [start for stop in stops if (start := text.find(stop)) >= 0]
    whole = text[: min(starts)] if starts else text
    # A cut may show a stop that ends earlier before one that starts earlier is complete.
    assert shown(pieces, stops).startswith(whole) or whole.startswith(shown(pieces, stops))
    assert not any(stop in shown(pieces, stops) for stop in stops)


def test_a_half_finished_stop_string_is_text_after_all():
    assert shown(["he said st", "o"], ["stop"]) == "he said sto"
    assert shown(["he said st", "op and went"], ["stop"]) == "he said "


def test_a_model_without_tokenizer_speaks_in_numbers():
    assert "".join(pieces_of(IdsAsText(), [5, 17])) == "5 17 "
    assert IdsAsText().encode("5 17") == [5, 17]
    with pytest.raises(ValueError, match="no tokenizer"):
        IdsAsText().encode("hello")
