"""Sessions with subagents live at random, wherever they run."""

from __future__ import annotations

import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from .family import Family, House, Place
from .family_script import KINDS, NAMES

SLOTS = 2
HASTY = 3
"""Requests to one session without waiting for it in between."""
RESTARTS = 2

slots = st.integers(0, SLOTS - 1)
kinds = st.sampled_from((*KINDS, "hang", "hang", "answer"))
names = st.sampled_from((*NAMES, "a", "a", "b", "f", "r"))
patience = st.sampled_from((True, True, False))
acts = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(("a", "b", "c")), kinds),
    st.tuples(st.just("create"), st.sampled_from(("a", "b", "c")), kinds),
    st.tuples(st.sampled_from(("tell", "divert")), names, kinds),
    st.tuples(st.sampled_from(("interrupt", "close", "resume")), names),
    st.tuples(st.just("wait"), st.sampled_from(("short", "long", "any"))),
    st.tuples(st.sampled_from(("rest", "ask")), kinds),
    st.sampled_from((("fan",), ("work",), ("say",), ("forget",))),
).map(" ".join)
# A cancel is None.
batches = st.lists(st.one_of(acts, st.none()), min_size=2, max_size=3)


class FamilyMachine(RuleBasedStateMachine):
    """`place` is set by the test that runs the machine."""

    place: Place
    failures = 0

    def __init__(self) -> None:
        super().__init__()
        self.families: list[Family | None] = [None] * SLOTS
        self.past: list[Family] = []
        self.hasty = 0
        self.restarts = 0
        self.broken = True
        self.house = House(self.place, self.place.client())

    @property
    def living(self) -> list[Family]:
        known = (family for family in (*self.families, *self.past) if family is not None)
        return [family for family in known if not family.deleted]

    def family(self, slot: int) -> Family:
        found = self.families[slot]
        if found is None or found.deleted:
            found = self.families[slot] = Family(self.house)
            found.create(found.write("create a hang"))
        return found

    def done(self, settle: bool, *families: Family) -> None:
        """Hold what was done against the rules."""
        self.hasty = 0 if settle or self.hasty >= HASTY else self.hasty + 1
        for family in families:
            if family.deleted:
                continue
            if self.hasty == 0:
                family.settle()
            else:
                family.look()
        self.broken = False

    # ---- rules

    @initialize(act=acts)
    def first(self, act: str) -> None:
        family = self.families[0] = Family(self.house)
        family.create(family.write(act))
        self.done(True, family)

    @rule(slot=slots, act=acts, settle=patience)
    def say(self, slot: int, act: str, settle: bool) -> None:
        self.broken = True
        family = self.family(slot)
        family.post([family.write(act)])
        self.done(settle, family)

    @rule(slot=slots, act=acts, settle=patience)
    def say_more(self, slot: int, act: str, settle: bool) -> None:
        self.say(slot, act, settle)

    @rule(slot=slots, batch=batches, settle=patience)
    def batch(self, slot: int, batch: list[str | None], settle: bool) -> None:
        self.broken = True
        family = self.family(slot)
        family.post([None if act is None else family.write(act) for act in batch])
        self.done(settle, family)

    @rule(slot=slots, settle=patience)
    def cancel(self, slot: int, settle: bool) -> None:
        self.broken = True
        family = self.family(slot)
        family.post([None])
        self.done(settle, family)

    @rule(slot=slots, act=acts, settle=patience)
    def cancel_beside_a_message(self, slot: int, act: str, settle: bool) -> None:
        self.broken = True
        family = self.family(slot)
        text = family.write(act)
        with ThreadPoolExecutor(2) as pool:
            sent = [pool.submit(family.post, [each]) for each in (text, None)]
            for each in sent:
                each.result()
        self.done(settle, family)

    @rule(slot=slots, which=st.integers(0, 5), settle=patience)
    def release(self, slot: int, which: int, settle: bool) -> None:
        self.broken = True
        family = self.family(slot)
        closed = [gate for gate in family.gates if gate not in self.house.released][-6:]
        if closed:
            gate = closed[which % len(closed)]
            family.log.append(f"gate {gate} opens")
            self.house.release(gate)
        self.done(settle, family)

    @rule(slot=slots, settle=patience)
    def answer(self, slot: int, settle: bool) -> None:
        self.broken = True
        family = self.family(slot)
        family.answer()
        self.done(settle, family)

    @rule(slot=slots)
    def inspect(self, slot: int) -> None:
        self.broken = True
        self.family(slot).inspect()
        self.broken = False

    @rule(slot=slots)
    def delete(self, slot: int) -> None:
        self.broken = True
        family = self.family(slot)
        family.delete()
        if family.deleted:
            self.past.append(family)
            self.families[slot] = None
        self.broken = False

    @precondition(lambda self: self.restarts < RESTARTS)
    @rule(kill=st.booleans(), settle=patience)
    def restart(self, kill: bool, settle: bool) -> None:
        self.broken = True
        self.restarts += 1
        if kill:
            self.place.kill()
        else:
            assert self.place.terminate() == 0
        for family in self.living:
            family.log.append("killed" if kill else "stopped")
            family.look()
        self.house.client.close()
        self.place.start()
        self.house.client = self.place.client()
        self.done(settle, *self.living)

    def teardown(self) -> None:
        try:
            if not self.broken:
                self.broken = True
                for family in self.living:
                    family.end()
                self.broken = False
        finally:
            if self.broken:
                self.tell()
            for family in (*self.families, *self.past):
                for gate in family.gates if family is not None else ():
                    self.house.release(gate)
            self.house.client.close()

    def tell(self) -> None:
        """What was done, at the first failure: a failure by a race may not come again."""
        type(self).failures += 1
        if type(self).failures == 1:
            print(*traceback.format_exception_only(sys.exception()))
            for family in self.living:
                print(f"--- {family.id}", *family.log, sep="\n")
