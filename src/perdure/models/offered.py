"""The functions of one request as a provider takes them, and its calls as ours.

Providers refuse a whole request for one name with a dot or one property with a bracket. Such names get
others that are accepted, the same each time; calls of the model and of the history are translated.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.models.jsontext import encode, scrub
from perdure.models.messages import CallDone, FunctionSpec, ModelEvent, ModelRequest
from perdure.models.outgoing import MAX_NAME, function_name
from perdure.models.schema_sent import property_names, renamed, sendable

MAX_PROPERTY = 64
KEPT_BYTES = 8 << 20
CONTINUED = " … (continued in the description of its parameters)"
ROOT_CHOICES = ("anyOf", "oneOf", "allOf", "enum", "not")

_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOT_OF_A_PROPERTY = re.compile(r"[^a-zA-Z0-9_.-]+")
_PROPERTY_REFUSED = re.compile(
    r"propert(?:y|ies) (?:keys?|names?)\b.{0,80}\b(?:pattern|match|invalid|must)", re.IGNORECASE | re.DOTALL
)
_DESCRIPTION_REFUSED = re.compile(r"description\W.{0,40}too long.{0,60}maximum length (\d+)", re.I | re.S)
_SCHEMA_REFUSED = re.compile(r"schema|parameters|properties", re.IGNORECASE)
_NAMED = re.compile(r"schema for function '([^']+)'", re.IGNORECASE)
_PLACED = re.compile(r"(?:tools|function_declarations)[.\[](\d+)(?!\d|\]?\.function_declarations)", re.I)


Told = tuple[FunctionSpec, dict[str, str]]
"""A function as it is offered, and the names that its properties have there."""


@dataclass(frozen=True, slots=True)
class OfferRules:
    """What a provider takes of functions.

    Args:
        leading_letter: names begin with a letter or an underscore.
        plain_properties: names of properties are up to 64 of `A-Z a-z 0-9 _ . -`.
        plain_root: the root of a schema makes no choices (`anyOf`, `not` and the like).
        description: most characters of a function's description.
        in_words: digests of schemas that are refused whatever their form.
    """

    leading_letter: bool = False
    plain_properties: bool = False
    plain_root: bool = True
    description: int | None = None
    in_words: frozenset[bytes] = frozenset()


class ToldFunctions:
    """What was made of the functions that are offered again and again, within bounds."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[OfferRules, str, str, bytes], Told] = OrderedDict()
        self._size = 0

    def get(self, key: tuple[OfferRules, str, str, bytes], make: Callable[[], Told]) -> Told:
        """What was made under a key, of which the last part tells the size."""
        found = self._kept.pop(key, None)
        if found is None:
            found = make()
            self._size += len(key[-1])
        self._kept[key] = found
        while self._size > KEPT_BYTES:
            oldest = next(iter(self._kept))
            self._kept.pop(oldest)
            self._size -= len(oldest[-1])
        return found


class OfferLessons:
    """The rules of each model: those of its protocol, corrected by what it has refused."""

    def __init__(self, known: OfferRules) -> None:
        self._known = known
        self._learnt: dict[str, OfferRules] = {}
        self._told = ToldFunctions()

    def offer(self, request: ModelRequest) -> Offered:
        """The functions of a request as its model takes them."""
        return Offered(request.tools, self.rules(request.model), self._told)

    def rules(self, model: str) -> OfferRules:
        return self._learnt.get(model, self._known)

    def learn(self, request: ModelRequest, complaint: str) -> bool:
        """Take a refused request into account; whether the next one will be different."""
        model = request.model
        rules = changed = self.rules(model)
        if found := _DESCRIPTION_REFUSED.search(complaint):
            limit = int(found[1])
            if limit > len(CONTINUED) and (rules.description is None or limit < rules.description):
                changed = replace(rules, description=limit)
        elif _PROPERTY_REFUSED.search(complaint) and not rules.plain_properties:
            changed = replace(rules, plain_properties=True)
        elif schemas := _refused_schemas(Offered(request.tools, rules), request.tools, complaint):
            changed = replace(rules, in_words=rules.in_words | schemas)
        if changed != rules:
            self._learnt[model] = changed
        return changed != rules


class Offered:
    """The functions of one request. `tools` are what the provider is told of them."""

    def __init__(
        self, tools: Sequence[FunctionSpec], rules: OfferRules, told: ToldFunctions | None = None
    ) -> None:
        """`told`: what was made of functions before."""
        self._rules = rules
        told = told or ToldFunctions()
        self._sent: dict[str, str] = {}
        self._ours: dict[str, str] = {}
        self._properties: dict[str, dict[str, str]] = {}
        for spec in tools:
            self._sent[spec.name] = sent = self._acceptable(spec.name)
            self._ours[sent] = spec.name
        self.tools = tuple(self._take(spec, told) for spec in tools)

    @property
    def changed(self) -> frozenset[tuple[str, ...]]:
        """Everything that has another name at the provider; a history is written with it."""
        functions = {(ours, sent) for ours, sent in self._sent.items() if ours != sent}
        properties = {(name, *each) for name, names in self._properties.items() for each in names.items()}
        return frozenset(functions | properties)

    def sent(self, name: str) -> str:
        """The name under which a function is offered, or an acceptable one for a function of the past."""
        return self._sent.get(name) or self._acceptable(name)

    def arguments(self, name: str, text: str) -> str:
        """The arguments of a call of the past, as the provider knows the properties."""
        names = self._properties.get(name)
        return text if names is None else _renamed(text, names)

    def ours(self, event: ModelEvent) -> ModelEvent:
        """An event of the answer, with our names in it if it is a call."""
        if not isinstance(event, CallDone):
            return event
        name = self._ours.get(event.name, event.name)
        names = self._properties.get(name)
        arguments = event.arguments
        if names is not None:
            arguments = _renamed(arguments, {sent: ours for ours, sent in names.items()})
        if name == event.name and arguments is event.arguments:
            return event
        return replace(event, name=name, arguments=arguments)

    def _acceptable(self, name: str) -> str:
        """The name, or one that is made from it alone: what is signed with it must come back with it."""
        clean = function_name(name)
        if self._rules.leading_letter and not (clean[0].isalpha() or clean[0] == "_"):
            clean = f"_{clean}"
        return name if clean == name else _marked(clean, name, MAX_NAME)

    def _take(self, spec: FunctionSpec, told: ToldFunctions) -> FunctionSpec:
        key = (self._rules, spec.name, spec.description, encode(dict(spec.parameters)))
        made, names = told.get(key, lambda: self._told(spec))
        if names:
            self._properties[spec.name] = names
        return made

    def _told(self, spec: FunctionSpec) -> Told:
        rename: Callable[[str], str] = str
        names: dict[str, str] = {}
        if self._rules.plain_properties:
            names = {
                name: _property(name)
                for name in property_names(spec.parameters)
                if not _PROPERTY.fullmatch(name)
            }
            if names:
                rename = _by(names)
        parameters = sendable(spec.parameters, rename)
        description = spec.description
        if self._rules.in_words and _digest(spec.parameters) in self._rules.in_words:
            told = f"The input must match this JSON Schema: {encode(parameters).decode()}"
            return FunctionSpec(self._sent[spec.name], _also(description, told), sendable({}, str)), names
        if names:
            description = _also(description, _names_told(names))
        if self._rules.plain_root:
            # A choice between whole objects is told in words, and checked when the call comes.
            choices = {key: parameters.pop(key) for key in ROOT_CHOICES if key in parameters}
            if choices:
                told = f"The input must also match this JSON Schema: {encode(choices).decode()}"
                description = _also(description, told)
        most = self._rules.description
        if most is not None and len(description) > most:
            parameters["description"] = description
            description = description[: most - len(CONTINUED)] + CONTINUED
        return FunctionSpec(self._sent[spec.name], description, parameters), names


def _refused_schemas(offered: Offered, tools: Sequence[FunctionSpec], complaint: str) -> frozenset[bytes]:
    """The schemas of those functions that a complaint about schemas names, by name or place."""
    if not _SCHEMA_REFUSED.search(complaint):
        return frozenset()
    names = set(_NAMED.findall(complaint))
    places = {int(place) for place in _PLACED.findall(complaint)}
    return frozenset(
        _digest(spec.parameters)
        for place, (spec, sent) in enumerate(zip(tools, offered.tools, strict=True))
        if place in places or sent.name in names
    )


def _digest(schema: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(encode(dict(schema))).digest()


def _property(name: str) -> str:
    """Another name for a property."""
    return _marked(_NOT_OF_A_PROPERTY.sub("_", name).strip("_"), name, MAX_PROPERTY)


def _marked(clean: str, name: str, longest: int) -> str:
    """The mark keeps it apart from all other names, also from those that a model may think up."""
    mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{clean[: longest - 9]}_{mark}"


def _by(names: Mapping[str, str]) -> Callable[[str], str]:
    return lambda name: names.get(name, name)


def _names_told(names: Mapping[str, str]) -> str:
    told = ", ".join(f"{sent} is {encode(ours).decode()}" for ours, sent in names.items())
    return f"Properties whose own names cannot be written here: {told}."


def _also(description: str, more: str) -> str:
    return f"{description}\n\n{more}" if description else more


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """JSON text with the keys of its objects renamed; what is no JSON stays as it is."""
    if not any(name in text for name in names) and "\\" not in text:
        return text
    try:
        value: Any = renamed(json.loads(text), _by(names))
        return json.dumps(scrub(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError):
        return text
