"""Make a corpus from a graph: one document per fact, and on request one for its inverse."""

from collections.abc import Iterator

from shared.replies import CorpusRecord, Document
from shared.rules import sentences, times
from shared.storage.graphs import CHUNK, GraphFacts


def documents(upload: GraphFacts, *, inverse: bool) -> Iterator[CorpusRecord]:
    """Yield the documents in the order of the facts; ids are the facts' numbers from 0, and "7-inverse" follows "7"."""
    relations = upload.graph.relations
    words = [sentences.phrase(each, upload.phrases.get(each)) for each in relations]
    inverses = [sentences.inverse_phrase(each, upload.phrases.get(each)) for each in relations]
    entities = upload.graph.entities
    for number, (subject, relation, obj, time) in enumerate(_facts(upload)):
        names = entities[subject], entities[obj]
        meta = {"subject": names[0], "relation": relations[relation], "object": names[1]}
        meta |= {} if time is None else {"time": time}
        yield _document(str(number), sentences.sentence(names[0], words[relation], names[1], time), meta)
        if inverse:
            sentence = sentences.sentence(names[1], inverses[relation], names[0], time)
            yield _document(f"{number}-inverse", sentence, meta)


def _facts(upload: GraphFacts) -> Iterator[tuple[int, int, int, str | None]]:
    """Yield the numbers of subject, relation and object of each fact, and its time as text."""
    graph, unit, _ = upload
    for first in range(0, len(graph.triples), CHUNK):
        triples = graph.triples[first : first + CHUNK].tolist()
        if graph.times is None or unit is None:
            yield from ((*triple, None) for triple in triples)
            continue
        steps = graph.times[first : first + CHUNK].tolist()
        yield from ((*triple, times.written(step, unit)) for triple, step in zip(triples, steps, strict=True))


def _document(identifier: str, text: str, meta: dict[str, str]) -> CorpusRecord:
    return CorpusRecord(external_id=identifier, document=Document(text=text), meta=meta)
