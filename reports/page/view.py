"""Everything the page shows, as plain records: the templates only lay it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.figures import gallery, telemetry
from reports.load_sweep import sweep
from reports.page import claims_view, facts, method_view, side_by_side
from reports.page.engine_rows import EngineTable, engine_table
from reports.page.ladder_view import LadderView, ladder_view
from reports.page.load_table import LoadTable, load_table
from reports.page.pictures import Picture, picture

if TYPE_CHECKING:
    from reports.runfile import RunFile

BUDGET_FIGURES = (
    ("weights_bytes", "Weights"),
    ("kv_bytes", "KV cache, all requests"),
    ("kv_token_bytes", "KV cache per token"),
    ("left_bytes", "Left on the card"),
    ("sequences", "Sequences of this length that fit"),
    ("fills_at_tokens", "Context at which these requests fill it"),
    ("step_bytes", "Bytes read by one decode step"),
    ("ceiling_tokens_per_s", "Decode ceiling, all requests"),
)
SECTIONS = (
    ("ladder", "Ladder"),
    ("engines", "Engines"),
    ("verdicts", "Verdicts"),
    ("figures", "Figures"),
    ("load", "Load"),
    ("answers", "Answers"),
    ("budget", "Budget"),
    ("method", "Method"),
)


@dataclass(frozen=True)
class PageView:
    """The whole page."""

    title: str
    lede: str
    run_id: str
    facts: list[tuple[str, str]]
    tally: list[tuple[str, str, int]]
    sections: list[tuple[str, str]]
    ladder: LadderView
    engines: EngineTable
    claim_sections: list[claims_view.SectionView]
    figures: list[Picture]
    load: LoadTable | None
    answers: list[side_by_side.Group]
    budget_figures: tuple[tuple[str, str], ...]
    method: list[str]
    methods: list[method_view.Method]
    not_applicable: list[str]
    not_passed: list[str]


def page_view(run: RunFile) -> PageView:
    """Turn a run into what the page shows."""
    claim_sections = claims_view.sections(run.verdicts)
    answers, load = side_by_side.groups(run), load_table(sweep(run))
    absent = {name for name, content in (("load", load), ("answers", answers)) if not content}
    return PageView(
        title=facts.title(run),
        lede="Batch-1 decode waits for weights to arrive from memory, not for arithmetic. "
        "Here is how far each engine is from that ceiling, and what each step toward it cost.",
        run_id=str(run.experiment["run_id"]),
        facts=facts.facts(run, telemetry.samples(run)),
        tally=claims_view.tally(claim_sections),
        sections=[entry for entry in SECTIONS if entry[0] not in absent],
        ladder=ladder_view(run),
        engines=engine_table(run),
        claim_sections=claim_sections,
        figures=[picture(drawing) for drawing in gallery.run_figures(run)],
        load=load,
        answers=answers,
        budget_figures=BUDGET_FIGURES,
        method=method_view.rules(run),
        methods=method_view.methods(run),
        not_applicable=method_view.not_applicable(run),
        not_passed=method_view.not_passed(run),
    )
