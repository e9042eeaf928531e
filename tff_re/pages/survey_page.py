"""The page of a survey, for the terminal and as HTML: sums over sites, no text, and no site's own counts."""

from __future__ import annotations

from collections.abc import Sequence

from tff_re.pages.page import Block, Facts, Items, Section, Table, Words, page
from tff_re.sites.survey_messages import TRAIN
from tff_re.sites.survey_result import Cell, SurveyResult, TotalTable
from tff_re.sites.survey_tables import cut_columns


def survey_page(result: SurveyResult, made_by: str) -> str:
    """Return the page as HTML, with `made_by` as its last line."""
    subtitle = "Sums of counts that each site protected before it sent them. No text left a site."
    return page(_title(result), subtitle, survey_sections(result), made_by)


def survey_sections(result: SurveyResult) -> list[Section]:
    """What the page shows, in its order."""
    tables = result.tables
    sections = [Section("sites", _title(result), [Facts(_facts(result)), *_sizes(result)])]
    if "labels" in tables:
        sections.append(Section("labels", "Labels", [*_table(result, "labels", "label"), *_skew(result)]))
    sections.append(Section("lengths", "Tokens of a text", [*_table(result, "lengths", "tokens"), *_cut(result)]))
    if "unknown" in tables or result.words is not None:
        sections.append(Section("vocabulary", "Vocabulary", [*_unknown(result), *_words(result)]))
    sections.append(Section("repeats", "Texts that occur before", _table(result, "repeats", "at the same site")))
    return [
        *sections,
        Section("warnings", "Warnings", _list(result.warnings, "none")),
        Section("notes", "What the survey does not tell", _list(_reading(result), "nothing")),
    ]


def _title(result: SurveyResult) -> str:
    return f"Data of {len(result.sites)} sites under {result.recipe}"


def _list(lines: Sequence[str], if_empty: str) -> list[Block]:
    return [Items(lines) if lines else Words(if_empty)]


def _facts(result: SurveyResult) -> dict[str, str]:
    if result.least_counts is None:
        protection = f"noise of ε = {result.epsilon:g} at each site, for one text; δ = 0"
    else:
        low, high = result.least_counts
        least = str(low) if low == high else f"{low} to {high}, by site"
        protection = f"least count of {least}: smaller counts of a site are hidden"
    if result.masked:
        protection += "; masked: only totals over the sites were opened"
    return {
        "sites": ", ".join(result.sites),
        "digest of the recipe": result.digest,
        "protection": protection,
    }


def _sizes(result: SurveyResult) -> list[Block]:
    tables = result.tables
    splits = list(tables["texts"].rows)
    rows = [["texts", *(_sum(tables["texts"].rows[split]["texts"]) for split in splits)]]
    if "clients" in tables:
        of_split = tables["clients"].rows
        rows.append(["clients with texts", *(_sum(of_split[s]["clients"]) if s in of_split else "" for s in splits)])
    for name, more in (("client_sizes", "clients with {} training texts"), ("left_out", "{}")):
        if name in tables:
            for column, cell in tables[name].rows[TRAIN].items():
                rows.append([more.format(column), _sum(cell), *("" for _ in splits[1:])])
    noise = [
        f"{name.replace('_', ' ')} {table.noise:.1f}"
        for name in ("texts", "clients", "client_sizes")
        if (table := tables.get(name)) is not None and table.noise is not None
    ]
    words = [Words(f"Standard deviation of the noise: {', '.join(noise)}.")] if noise else []
    return [Table(["", *splits], rows), *words]


def _table(result: SurveyResult, name: str, heading: str) -> list[Block]:
    """The table with a row for each column of the counts, and shares of the split's texts."""
    table, texts = result.tables[name], result.tables["texts"]
    rows = [
        [column, *(_share(table.rows[split][column], texts.rows[split]["texts"]) for split in table.rows)]
        for column in table.columns
    ]
    return [Table([heading, *table.rows], rows), *_noise(table)]


def _noise(table: TotalTable) -> list[Block]:
    if table.noise is None:
        return []
    return [Words(f"Standard deviation of the noise of a count: {table.noise:.1f}.")]


def _cut(result: SurveyResult) -> list[Block]:
    columns = cut_columns(result.max_length)
    if not columns:
        return [Words("The recipe cuts no text.")]
    table, texts = result.tables["lengths"], result.tables["texts"]
    cut = {split: sum((row[column] for column in columns), Cell()) for split, row in table.rows.items()}
    counts = (f"{_share(cell, texts.rows[split]['texts'])} of {split}" for split, cell in cut.items())
    return [Words(f"Cut at {result.max_length} tokens: {', '.join(counts)}.")]


def _unknown(result: SurveyResult) -> list[Block]:
    if "unknown" not in result.tables:
        return []
    blocks = _table(result, "unknown", "texts by their share of unknown tokens")
    if result.own_vocabulary:
        blocks.append(Words("Counted as if other sites held all frequent words of a site."))
    return blocks


def _words(result: SurveyResult) -> list[Block]:
    words = result.words
    if words is None:
        return []
    return [
        Facts(
            {
                f"words in at least {words.least_count} training texts of a site": str(words.distinct),
                "of these at two or more sites": f"{words.shared} ({words.shared / words.distinct:.1%})",
                "of these at all sites": f"{words.everywhere} ({words.everywhere / words.distinct:.1%})",
                "share of a site's words that another site has, mean": f"{words.mean_shared:.1%}",
            }
        )
    ]


def _skew(result: SurveyResult) -> list[Block]:
    skew = result.skew
    if skew is None:
        return []
    at_least = "at least " if skew.at_least else "with noise " if result.epsilon is not None else ""
    partial = ", over the labels that all sites show" if skew.partial else ""
    name = f"label skew: total variation distance between a site and all, mean{partial}"
    facts = {name: f"{at_least}{skew.mean:.2f} (0 to 1)"}
    facts |= {f"distance of {site}": f"{distance:.2f}" for site, distance in skew.distances.items()}
    return [Facts(facts)]


def _reading(result: SurveyResult) -> list[str]:
    """How to read the numbers, then what is missing."""
    if result.least_counts is not None:
        how = [
            '"12 + hidden at 2": 12 at the sites that show the count; 2 sites hide theirs, because it is small, or '
            "because a smaller one could be computed from it"
        ]
    else:
        how = ["counts have noise and may be below 0; shares are of noisy sums"]
    return [*how, *result.notes]


def _sum(cell: Cell) -> str:
    if not cell.hidden:
        return str(cell.total)
    return f"{cell.total} + hidden at {cell.hidden}" if cell.total else f"hidden at {cell.hidden}"


def _share(cell: Cell, texts: Cell) -> str:
    if cell.hidden or texts.hidden or texts.total <= 0:
        return _sum(cell)
    return f"{cell.total} ({cell.total / texts.total:.1%})"
