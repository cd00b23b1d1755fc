"""Strict form and the way back, for generated schemas and values; two validators that are not ours judge."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

import jsonschema
import jsonschema_rs
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st
from tests.schema.generated import Generator
from tests.schema.strictable import Author, Hopeless, Writer, parts_of, spoiled

from perdure.schema.refusals import SchemaRefused
from perdure.schema.restoring import Restorer
from perdure.schema.strict import strict_form

seeds = st.integers(0, 2**64 - 1)
DRAFTS = {
    4: jsonschema.Draft4Validator,
    6: jsonschema.Draft6Validator,
    7: jsonschema.Draft7Validator,
    2019: jsonschema.Draft201909Validator,
    2020: jsonschema.Draft202012Validator,
}


class Oracle:
    """The verdict of both validators, which must be the same."""

    def __init__(self, schema: Any, year: int = 2020) -> None:
        self._slow = DRAFTS[year](schema)
        self._fast = jsonschema_rs.validator_for(schema, validate_formats=False)

    def allows(self, value: Any) -> bool:
        verdict = bool(self._slow.is_valid(value))
        assert self._fast.is_valid(value) is verdict
        return verdict


@settings(max_examples=120, deadline=None)
@given(seed=seeds)
def test_values_in_strict_form_come_back_as_values_of_the_author(seed: int) -> None:
    random = Random(seed)
    author = Author(random)
    schema = author.schema()
    form = strict_form(schema)
    jsonschema.Draft202012Validator.check_schema(form.schema)
    strict, original = Oracle(form.schema), Oracle(schema)
    restorer = Restorer(form)
    written = 0
    for _ in range(8):
        try:
            value, back = Writer(random, schema).pair()
        except Hopeless:
            continue
        written += 1
        assert strict.allows(value), (schema, value)
        restored = restorer.restore(value)
        assert original.allows(restored), (schema, value, restored)
        if not author.ambiguous:
            assert restored == back
        for _ in range(4):
            other = spoiled(value, random)
            if strict.allows(other):
                event("spoiled, and valid still")
                assert original.allows(restorer.restore(other)), (schema, other)
    if not written:
        reject()


@settings(max_examples=300, deadline=None)
@given(seed=seeds, year=st.sampled_from(sorted(DRAFTS)))
def test_a_schema_of_any_kind_is_refused_or_keeps_its_rules(seed: int, year: int) -> None:
    draw = Generator(seed, year)
    schema = draw.schema()
    try:
        form = strict_form(schema)
    except SchemaRefused as refused:
        event(f"refused: {refused.reason[-24:]}")
        return
    event("has a strict form")
    strict, original = Oracle(form.schema, year), Oracle(schema, year)
    restorer = Restorer(form)
    names = list(form.schema["properties"])
    for _ in range(12):
        value = {name: draw.value() if draw.random.random() < 0.6 else None for name in names}
        if strict.allows(value):
            event("valid")
            assert original.allows(restorer.restore(value)), (schema, value)


@settings(max_examples=400, deadline=None)
@given(seed=seeds)
def test_a_rule_added_anywhere_is_kept_or_refused(seed: int) -> None:
    random = Random(seed)
    plain = Author(random).schema()
    schema = deepcopy(plain)
    fragment = random.choice(list(Generator(seed).schema()["properties"].values()))
    if isinstance(fragment, bool):
        fragment = {"minLength": 1}
    random.choice(list(parts_of(schema))).update(fragment)
    try:
        form = strict_form(schema)
    except SchemaRefused as refused:
        event(f"refused: {refused.reason[-24:]}")
        return
    event("has a strict form")
    strict, original = Oracle(form.schema), Oracle(schema)
    restorer = Restorer(form)
    for _ in range(4):
        try:
            value, _ = Writer(random, plain).pair()
        except Hopeless:
            continue
        for candidate in (value, spoiled(value, random), spoiled(value, random)):
            if strict.allows(candidate):
                event("valid")
                assert original.allows(restorer.restore(candidate)), (schema, candidate)


@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_what_a_model_leaves_out_or_adds_never_makes_restoring_fail(seed: int) -> None:
    random = Random(seed)
    schema = Author(random).schema()
    restorer = Restorer(strict_form(schema))
    draw = Generator(seed)
    for _ in range(6):
        value = draw.object()
        copy = repr(value)
        restorer.restore(value)
        assert repr(value) == copy
