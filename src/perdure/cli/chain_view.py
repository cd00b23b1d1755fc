"""A chain for people as a tree, and the findings below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from perdure.cli.terminal import escaped, open_console, shown, visible
from perdure.inspect.links import (
    Call,
    Chain,
    Coordination,
    Entry,
    Finding,
    Message,
    Orphan,
    Owed,
    Result,
    ThreadLink,
    Tokens,
    TurnLink,
    Work,
)

STYLES = {
    "owed": "bold yellow", "answered": "green", "failed": "red", "dropped": "yellow", "mismatched": "bold "
    "red",
    "unanswered": "yellow", "unknown": "yellow", "completed": "green", "cancelled": "yellow", "idle": "cyan",
    "incomplete": "yellow", "requires_action": "bold yellow", "orphaned": "bold red", "closed": "dim",
    "missing": "bold red", "waiting": "yellow", "at work": "cyan",
}  # fmt: skip
REPORTS = {
    "told": "reported", "told_by_call": "told by the call that ended it", "waiting": "report waits",
    "missing": "report missing",
}  # fmt: skip
OUTCOMES = {
    "waiting": "waits", "all_ended": "until all had ended", "some_ended": "was over before",
    "none_ended": "was over before", "broken_off": "ended with its turn", "refused": "was refused",
}  # fmt: skip
Names = Mapping[str, str]
KIND_WIDTH = 9


def print_tree(chain: Chain, *, with_ids: bool) -> None:
    """Print a chain as a tree; every line is cut at the width of the terminal."""
    console = open_console()
    top = Tree(line_of((visible(chain.session_id or "no session"), "bold"), *session_words(chain)))
    names = names_of(chain)
    branches: list[Tree] = [top]
    for thread in chain.threads:
        # What one agent created stands below it, behind its turns.
        del branches[max(thread.depth, 0) + 1 :]
        branch = branches[-1].add(thread_line(thread))
        branches.append(branch)
        for turn in thread.turns:
            twig = branch.add(_turn_line(turn))
            for entry in turn.entries:
                _add(twig, entry, with_ids, names)
    for owed in chain.owed:
        top.add(_owed_line(owed))
    console.print(top)


def session_words(chain: Chain) -> Iterator[tuple[str, str]]:
    if chain.status is not None:
        yield chain.status, STYLES.get(chain.status, "")
    if chain.model is not None:
        yield visible(chain.model), "dim"
    if chain.usage is not None and len(chain.threads) > 1:
        yield f"{chain.usage.total} tokens in all", "dim"
    if chain.error:
        yield shown(chain.error), "red"


def thread_line(thread: ThreadLink) -> Text:
    name = visible(thread.name or "")
    if thread.subagent_id is None:
        return line_of(
            ("main agent", "bold"), (name, ""), (visible(thread.agent_id or ""), "dim"), _used(thread.usage)
        )
    doing = "at work" if thread.is_running else ""
    return line_of(
        ("subagent", "bold"),
        (visible(thread.subagent_id), ""),
        (name, ""),
        (thread.status or "", STYLES.get(thread.status or "", "")),
        (doing, STYLES["at work"]),
        (f"of {visible(thread.parent_agent_id)}" if thread.parent_agent_id else "", "dim"),
        _used(thread.usage),
    )


def names_of(chain: Chain) -> Names:
    """What the agents of a chain are called, by id."""
    return {
        thread.agent_id: thread.name or ("main agent" if thread.subagent_id is None else "")
        for thread in chain.threads
        if thread.agent_id is not None
    }


def _used(usage: Tokens | None) -> tuple[str, str]:
    return ("" if usage is None else f"{usage.total} tokens", "dim")


def _turn_line(turn: TurnLink) -> Text:
    if not turn.is_listed:
        return line_of((visible(turn.id or "no turn"), "bold"), ("not listed by the session", "yellow"))
    status = turn.status or "?"
    return line_of(
        (visible(turn.id or "?"), "bold"),
        (status, STYLES.get(status, "")),
        (f"{turn.seconds} s" if turn.seconds is not None else "", "dim"),
        ("" if turn.report is None else REPORTS[turn.report], STYLES.get(turn.report or "", "dim")),
        (shown(turn.error) if turn.error else "", "red"),
    )


def _owed_line(owed: Owed) -> Text:
    return line_of(
        ("owed", STYLES["owed"]),
        (owed.type, ""),
        (visible(owed.name or ""), ""),
        (visible(owed.key or ""), ""),
        (f"in {visible(owed.turn_id)}" if owed.turn_id else "", "dim"),
    )


def _add(twig: Tree, entry: Entry, with_ids: bool, names: Names) -> None:
    match entry:
        case Message():
            note = "" if entry.phase != "commentary" else "(commentary)"
            line = _entry(entry.role, ("", ""), (note, "dim"), (visible(entry.text), ""))
            twig.add(_with_id(line, entry.place.id, with_ids))
        case Work():
            style = STYLES.get(entry.place.status or "", "dim")
            twig.add(
                _with_id(
                    _entry(short_kind(entry.place.type), (entry.place.status or "", style),
                           (visible(entry.summary), "")),
                    entry.place.id, with_ids,
                )
            )  # fmt: skip
        case Coordination():
            twig.add(_with_id(_coordination(entry, names), entry.place.id, with_ids))
        case Call():
            head = _entry(
                "call", (visible(entry.name or "?"), "bold"), (entry.state, STYLES[entry.state]),
                (visible(entry.call_id or "no call_id"), ""),
            )  # fmt: skip
            place = None if entry.place is None else entry.place.id
            leaf = twig.add(_with_id(head, place, with_ids))
            leaf.add(_entry("asked", (shown(entry.arguments), "")))
            for result in entry.results:
                leaf.add(_result(result, with_ids, named=result.call_id != entry.call_id))
        case Orphan():
            line = _entry("orphan", ("result without call", STYLES["orphaned"]))
            if entry.meant is not None:
                line = _entry("orphan", ("perhaps for", STYLES["orphaned"]), (visible(entry.meant), ""))
            twig.add(line).add(_result(entry.result, with_ids, named=True))
        case _:
            assert_never(entry)


def _coordination(entry: Coordination, names: Names) -> Text:
    status = entry.place.status or ""
    return _entry(
        short_kind(entry.place.type),
        (status, STYLES.get(status, "")),
        (route_of(entry, names), "cyan"),
        (came_of(entry, names), "dim"),
        (visible(entry.text), ""),
    )


def route_of(entry: Coordination, names: Names) -> str:
    """Who said something to whom, by name where there is one."""
    if entry.place.type == "create_subagent_call":
        linked = f" (by {entry.linked_by})" if entry.linked_by else ""
        whom = _known(entry.subagent_id, names) if entry.subagent_id else "no subagent known"
        return f"→ {whom}{linked}"
    recipients = ", ".join(_known(each, names) for each in entry.recipients) or "-"
    return f"{_known(entry.sender or '?', names)} → {recipients}"


def came_of(entry: Coordination, names: Names) -> str:
    """What came of a wait, and which turn a report or a call is about."""
    if entry.outcome is not None:
        left = ", ".join(_known(each, names) for each in entry.unreported)
        is_early = entry.outcome in ("some_ended", "none_ended")
        return OUTCOMES[entry.outcome] + (f" {left} had ended" if is_early else "")
    if entry.about_turn_id is None:
        return ""
    verb = "reports" if entry.place.type == "agent_message" else "ended"
    return f"{verb} {visible(entry.about_turn_id)}"


def _known(agent_id: str, names: Names) -> str:
    return visible(names.get(agent_id) or agent_id)


def _result(result: Result, with_ids: bool, *, named: bool) -> Text:
    said = result.output if result.error is None else result.error
    words = [(f"call_id {visible(result.call_id or 'none')}", "red")] if named else []
    if result.source != "item":
        words.append((f"(from the {'journal' if result.source == 'journal' else 'sent events'})", "dim"))
    if result.success is False:
        words.append(("failed", "red"))
    line = _entry("result", *words, (shown(said), ""))
    return _with_id(line, None if result.place is None else result.place.id, with_ids)


def short_kind(kind: str) -> str:
    return visible(kind).removesuffix("_call").removesuffix("_execution").replace("_", " ")


def _entry(kind: str, *words: tuple[str, str]) -> Text:
    return line_of((kind.ljust(KIND_WIDTH), "dim"), *words)


def line_of(*words: tuple[str, str]) -> Text:
    """Words with their styles on one line; the last ones are cut first."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for word, style in words:
        if word:
            text.append("  " if len(text) else "")
            text.append(escaped(word), style=style or None)
    return text


def _with_id(line: Text, item_id: str | None, wanted: bool) -> Text:
    if not wanted or item_id is None:
        return line
    return line_of((visible(item_id), "magenta")) + Text("  ") + line


def print_findings(findings: Sequence[Finding], sessions: int) -> None:
    """Print what was found, problems first; with several sessions each names its own."""
    console = open_console()
    console.print()
    if not findings:
        console.print(Text("Nothing is out of place.", style="green"))
        return
    for severity, mark, style in (("problem", "✗", "bold red"), ("note", "·", "yellow")):
        for each in findings:
            if each.severity == severity:
                _print_finding(console, each, mark, style, sessions)


def _print_finding(console: Console, each: Finding, mark: str, style: str, sessions: int) -> None:
    head = Text(f"{mark} {each.kind}", style=style)
    if sessions > 1 and each.session_id is not None:
        head.append(f"  {visible(each.session_id)}", style="dim")
    console.print(head)
    console.print(Padding(Text(visible(each.text)), (0, 0, 0, 2), expand=False))
