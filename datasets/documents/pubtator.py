"""PubTator files: abstracts with annotated entities and the relations between them (CDR, CHR, GDA, BioRED).

A document is a block of lines, blank lines between the blocks::

    227508|t|Title
    227508|a|Abstract
    227508<TAB>0<TAB>8<TAB>Naloxone<TAB>Chemical<TAB>D009270
    227508<TAB>CID<TAB>D008750<TAB>D007022

Offsets count characters (code points) of title, one character, abstract; the end is exclusive. A seventh column has the
names of the parts of a composite mention (``ocular toxicity|auditory toxicity``), which need not stand in the text one
after the other. ``-1`` says that a mention has no identifier. BioRED's relations have a fifth column, ``Novel`` or
``No``: whether the relation is what the abstract found.

A file that was cut is told by what all published ones have: a line feed after the last line, and at the end of a
document no relation with a part of an identifier. A cut between two lines cannot be told.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from datasets.documents.records import Document, EntityMention, Fact
from datasets.errors import DataError, named
from datasets.files import PathLike
from datasets.json_values import Fail
from datasets.relations.reading import columns, one_of, read_lines, span

NO_IDENTIFIER = "-1"
ANY_NO_IDENTIFIER = (NO_IDENTIFIER, "-", "None")
"""What stands for no identifier in the files of several corpora."""

NO_RELATION = "None"
"""In files with `novelty`, the relation of a pair that is stated to have none."""

_NOVELTY = ("Novel", "No")

LINE_ENDS = str.maketrans("\t\n\r", "   ")
"""What the form cannot hold within a text, as blanks, so that offsets stay."""

_Span = tuple[int, int, str, tuple[str, ...]]  # start, end, type, identifiers sorted
_Statement = tuple[str, tuple[str, ...], tuple[str, ...]]  # relation, identifiers of both sides sorted
_Mentions = dict[_Span, tuple[str, ...]]
_Statements = dict[_Statement, tuple[tuple[str, ...], tuple[str, ...]]]

_TEXT = re.compile(r"([^|\t]+)\|([ta])\|(.*)", re.DOTALL)


def read_pubtator(
    path: PathLike,
    *,
    joined: str = "entities",
    separators: str = "|",
    kinds: Collection[str] | None = None,
    relations: Collection[str] | None = None,
    tally: Counter[str] | None = None,
    no_identifier: Collection[str] = (NO_IDENTIFIER,),
    novelty: bool = False,
) -> tuple[Document, ...]:
    """Read the documents of a PubTator file, compressed or not, in its order.

    Mentions are in the order of the text.

    What no reader can repair is refused. What is irregular but clear is read and counted: a duplicate annotation or
    relation (read once), a mention whose spelling differs from the text only in case, a relation that names
    an identifier without a mention (kept: no candidate pair can find it, so it counts as missed).

    Args:
      path: The file.
      joined: What several identifiers of a mention are: ``entities``, each an entity of its own (CDR, GDA: a composite
        mention names them all), or ``aliases``, names of one entity in several knowledge bases (CHR). Mentions of a
        document that share an alias name one entity; its id is all its aliases, sorted, joined by ``|``.
      separators: The characters, any of which joins identifiers.
      kinds: The entity types that there are; None: any.
      relations: The relations that there are; None: any.
      tally: Gets the counts, from a description (for `notes_of`) to a number.
      no_identifier: What stands for no identifier.
      novelty: Whether relations may have BioRED's fifth column, and may be named ``None``: the pair has none.

    Raises:
      DataError: a file without documents, or cut within a line; a block without title or abstract,
        with lines of two documents, or with an id that an earlier one has; a line with another number of columns;
        offsets beyond the text; a mention that is not at its offsets; a composite mention with more or fewer parts than
        identifiers; an unknown type or relation; a relation without an identifier, or with several that are entities.
    """
    split = functools.partial(
        _identifiers, pattern=re.compile(f"[{re.escape(separators)}]"), missing=frozenset(no_identifier)
    )
    tally = Counter() if tally is None else tally
    documents: list[Document] = []
    for _, block, document_id, text, title_length in _texts(path):
        mentions, stated = _annotated(block, document_id, text, path, split, joined, kinds, relations, tally, novelty)
        mentions, name_of = _entities(mentions, stated, joined, tally)
        named_sides = ((name_of[h[0]], relation, name_of[t[0]]) for (relation, *_), (h, t) in stated.items())
        facts = tuple(Fact(*names) for names in dict.fromkeys(named_sides))
        mentioned = {entity_id for ids in mentions.values() for entity_id in ids}
        tally["relations name an entity that the document does not mention"] += sum(
            fact.head_id not in mentioned or fact.tail_id not in mentioned for fact in facts
        )
        in_text = [EntityMention(*key[:3], ids) for key, ids in mentions.items()]
        in_text.sort(key=lambda mention: (mention.start, mention.end))
        documents.append(Document(document_id, text, title_length, tuple(in_text), facts))
    return tuple(documents)


def read_marked_texts(
    path: PathLike, *, kinds: Collection[str] | None = None, annotated: bool = True, tally: Counter[str] | None = None
) -> Iterator[tuple[Fail, Document]]:
    """Read the documents of a PubTator file with only mentions, each after a function that builds its error.

    For entity recognition: identifiers and relations are not read, so they may have any form (BioRED's relations have a
    fifth column, ``Novel`` or ``No``), and a mention may have no column of identifiers. Mentions are in the order of
    the text, those of one span in the order of the file; a mention that is there twice is given twice.

    Args:
      path: The file, compressed or not.
      kinds: The entity types that there are; None: any.
      annotated: Whether the lines after the text are read; if not, there are no mentions.
      tally: Gets the count of mentions whose spelling differs from the text only in case.

    Raises:
      DataError: as `read_pubtator` says of documents and mentions.
    """
    tally = Counter() if tally is None else tally
    for fail, block, document_id, text, title_length in _texts(path):
        mentions = []
        for fail_line, row in _rows(block, document_id, path, (4, 5, 6, 7)) if annotated else ():
            if _is_relation(row):
                continue
            if len(row) == 4:
                raise fail_line("has 4 columns", remedy="give it 5 or 6 or 7")
            start, end, kind = _mention(row, text, kinds, fail_line)
            tally["mentions differ from the text in case"] += text[start:end] != row[3]
            mentions.append(EntityMention(start, end, kind, ()))
        mentions.sort(key=lambda mention: (mention.start, mention.end))
        yield fail, Document(document_id, text, title_length, tuple(mentions), ())


def _texts(path: PathLike) -> Iterator[tuple[Fail, list[tuple[int, str]], str, str, int]]:
    """Read each document's error function (for its first line), block, id, text, and the title's length.

    Raises:
      DataError: a block without title or abstract, an id twice, or no documents.
    """
    seen = set()
    for block in _blocks(path):
        document_id, title, abstract = title_and_abstract(block, path)
        fail = functools.partial(DataError, path=path, line=block[0][0])
        if document_id in seen:
            raise fail("duplicate document", record=named("document", document_id), remedy="remove one of them")
        seen.add(document_id)
        yield fail, block, document_id, f"{title} {abstract}", len(title)
    if not seen:
        raise DataError("has no documents", path=path, remedy="give it at least one")


def _rows(
    block: Sequence[tuple[int, str]], document_id: str, path: PathLike, widths: Collection[int]
) -> Iterator[tuple[Fail, list[str]]]:
    """Yield an error function and the columns of each line after a document's text.

    Raises DataError.
    """
    for line, content in block[2:]:
        fail = functools.partial(DataError, path=path, line=line)
        row = columns(content, widths, fail)
        if row[0] != document_id:
            raise fail("the document's id changes", remedy="end every document with an empty line")
        yield fail, row


def _is_relation(row: Sequence[str]) -> bool:
    """Return whether a line is a relation.

    It has four columns and does not begin with an offset, or has five with BioRED's last.
    """
    return (len(row) == 4 and not row[1].isdecimal()) or (len(row) == 5 and row[4] in _NOVELTY)


def _annotated(
    block, document_id: str, text: str, path, split, joined: str, kinds, relations, tally: Counter[str], novelty: bool
) -> tuple[_Mentions, _Statements]:
    """Return the mentions and relations in the lines after a document's text."""
    mentions: _Mentions = {}
    stated: _Statements = {}
    row: list[str] = []
    for fail, row in _rows(block, document_id, path, (4, 5, 6, 7) if novelty else (4, 6, 7)):
        if len(row) == 5 and relations is None and row[1].isdecimal() and row[2].isdecimal():
            raise fail("the mention has no identifier", remedy=f"add a sixth column, {NO_IDENTIFIER} for none")
        if len(row) in (4, 5):
            key, value = _relation(row, split, joined, relations, novelty, fail)
            if novelty and key[0] == NO_RELATION:
                tally["pairs are stated to have no relation"] += 1
                continue
            tally["duplicate relations are read once"] += key in stated
            stated.setdefault(key, value)
        else:
            key, ids = _annotation(row, text, split, kinds, fail)
            tally["mentions differ from the text in case"] += text[key[0] : key[1]] != row[3]
            tally["duplicate annotations are read once"] += key in mentions
            mentions.setdefault(key, ids)
    tally["mentions without an identifier"] += sum(not ids for ids in mentions.values())
    if len(row) == 4:
        _require_whole(value, {i for ids in mentions.values() for i in ids}, fail)
    return mentions, stated


def _entities(
    mentions: _Mentions, stated: _Statements, joined: str, tally: Counter[str]
) -> tuple[_Mentions, dict[str, str]]:
    """Return the mentions with the ids of their entities, and the id of the entity of each identifier."""
    sides = [ids for pair in stated.values() for ids in pair]
    if joined == "entities":
        tally["mentions name several entities"] += sum(len(ids) > 1 for ids in mentions.values())
        return mentions, {ids[0]: ids[0] for ids in sides}
    name_of = _merged([*mentions.values(), *sides])
    lists = {tuple(sorted(ids)) for ids in mentions.values() if ids}
    merged = len(lists) - len({name_of[ids[0]] for ids in lists})
    tally["entities known by different lists of identifiers"] += merged
    return {key: (name_of[ids[0]],) if ids else () for key, ids in mentions.items()}, name_of


def _blocks(path: PathLike) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of each document, separated by blank lines."""
    for blank, block in itertools.groupby(read_lines(path, ended=True), lambda line: not line[1].strip()):
        if not blank:
            yield list(block)


def title_and_abstract(block: Sequence[tuple[int, str]], path: PathLike) -> tuple[str, str, str]:
    """Return document id, title and abstract from the first two (numbered) lines of a block.

    Raises DataError.
    """
    parts = []
    for mark, what, (line, content) in zip("ta", ("title", "abstract"), (*block, (block[0][0], ""))[:2], strict=True):
        match = _TEXT.fullmatch(content)
        if match is None or match[2] != mark:
            remedy = "begin it with id|t|title and id|a|abstract"
            raise DataError(f"the document has no {what}", path=path, line=line, remedy=remedy)
        parts.append((match[1], match[3]))
    (document_id, title), (second_id, abstract) = parts
    fail = functools.partial(DataError, path=path, line=block[1][0])
    if not document_id.strip():
        raise fail("the document has no id", line=block[0][0], remedy="begin its lines with one")
    if second_id != document_id:
        raise fail("the document's id changes", remedy="give title and abstract one id")
    if not title.strip() and not abstract.strip():
        raise fail("the document has no text", remedy="leave it out")
    return document_id, title, abstract


def _identifiers(value: str, fail: Fail, *, pattern: re.Pattern, missing: Collection[str]) -> list[str]:
    """Return the identifiers of a column as they are, with ``-1`` for none."""
    result = [part.strip() for part in pattern.split(value)]
    if not all(result):
        raise fail("an identifier is empty", remedy=f"write {NO_IDENTIFIER} for none")
    return [NO_IDENTIFIER if part in missing else part for part in result]


def _mention(row: Sequence[str], text: str, kinds: Collection[str] | None, fail: Fail) -> tuple[int, int, str]:
    """Return start, end and type of a mention."""
    kind = one_of(row[4], row[4:5] if kinds is None else kinds, "entity type", fail, column=5)
    if not kind.strip():
        raise fail("the mention has no type", remedy="name it in the fifth column")
    start, end = span(row[1], row[2], "mention", len(text), fail)
    if text[start:end].casefold() != row[3].casefold():
        raise fail("the mention is not at its offsets", remedy="repair the offsets")
    return start, end, kind


def _annotation(
    row: Sequence[str], text: str, split, kinds: Collection[str] | None, fail: Fail
) -> tuple[_Span, tuple[str, ...]]:
    """Return a mention's span and its identifiers, each once and without ``-1``."""
    start, end, kind = _mention(row, text, kinds, fail)
    ids = split(row[5], fail)
    if len(row) == 7 and len(ids) != len(row[6].split("|")):
        reason = f"a composite mention of {len(row[6].split('|'))} parts has {len(ids)} identifiers"
        raise fail(reason, remedy=f"give a part each, {NO_IDENTIFIER} for none")
    ids = tuple(dict.fromkeys(i for i in ids if i != NO_IDENTIFIER))
    return (start, end, kind, tuple(sorted(ids))), ids


def _relation(
    row: Sequence[str], split, joined: str, relations: Collection[str] | None, novelty: bool, fail: Fail
) -> tuple[_Statement, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return a relation and the identifiers of its two sides: one each, or the aliases of one entity each."""
    none = (NO_RELATION,) if novelty else ()
    name = one_of(row[1], row[1:2] if relations is None else (*relations, *none), "relation", fail, column=2)
    if not name.strip():
        raise fail("the relation has no name", remedy="name it in the second column")
    if len(row) == 5:
        one_of(row[4], (*_NOVELTY, *none) if name in none else _NOVELTY, "novelty", fail, column=5)
    head, tail = (tuple(dict.fromkeys(split(value, fail))) for value in row[2:4])
    for ids in (head, tail):
        if NO_IDENTIFIER in ids:
            raise fail("a relation names an entity without an identifier", remedy="give both sides one")
        if joined == "entities" and len(ids) > 1:
            raise fail("one side of a relation names several entities", remedy="give each pair a line")
    return (name, tuple(sorted(head)), tuple(sorted(tail))), (head, tail)


def _require_whole(last: Sequence[Sequence[str]], mentioned: Collection[str], fail: Fail) -> None:
    """Refuse a document's last relation if it names only the beginning of a mention's identifier."""
    for identifier in (i for ids in last for i in ids if i not in mentioned):
        if any(whole.startswith(identifier) for whole in mentioned):
            reason = "the relation names the beginning of an identifier: the line is cut"
            remedy = "copy or download the file again, or set task.separators if identifiers are joined by others"
            raise fail(reason, remedy=remedy)


def _merged(lists: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return the entity's id for each alias.

    Lists that share an alias, directly or through others, are one entity.
    """
    groups: list[set[str]] = []
    for ids in lists:
        if not ids:
            continue
        joined = set(ids).union(*(group for group in groups if not group.isdisjoint(ids)))
        groups = [group for group in groups if group.isdisjoint(ids)] + [joined]
    return {alias: "|".join(sorted(group)) for group in groups for alias in group}
