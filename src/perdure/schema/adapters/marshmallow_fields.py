"""The JSON Schema of marshmallow fields, as they are written in JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from perdure.schema.refusals import FormRefused
from perdure.schema.wording import printable

JsonSchema = dict[str, Any]


class FieldSchemas:
    """One conversion. `load`: of what `load` takes, else of what `dump` writes."""

    def __init__(self, *, load: bool) -> None:
        self._load = load
        self._definitions: JsonSchema = {}
        self._names: dict[object, str] = {}

    def document(self, schema: Any) -> JsonSchema:
        """The JSON Schema of a marshmallow schema. Raises FormRefused where a field cannot be described."""
        root = self._many(self._object(schema), schema.many)
        return root | ({"$defs": self._definitions} if self._definitions else {})

    def _object(self, schema: Any) -> JsonSchema:
        fields = {
            name: field
            for name, field in schema.fields.items()
            if not (field.dump_only if self._load else field.load_only)
        }
        partial = schema.partial
        keys = {
            field.data_key if field.data_key is not None else name: name for name, field in fields.items()
        }
        part: JsonSchema = {
            "type": "object",
            "title": type(schema).__name__,
            "properties": {
                key: self._field(fields[name], f"{type(schema).__name__}.{name}")
                for key, name in keys.items()
            },
        }
        required = [
            key
            for key, name in keys.items()
            if fields[name].required and not (partial is True or (partial and name in partial))
        ]
        if required and self._load:
            part["required"] = required
        match schema.unknown:
            case "raise" if self._load:
                part["additionalProperties"] = False
            case "include":
                part["additionalProperties"] = True
        return part

    def _many(self, part: JsonSchema, many: bool) -> JsonSchema:
        return {"type": "array", "items": part} if many else part

    def _field(self, field: Any, at: str) -> JsonSchema:
        from marshmallow import missing

        part = self._kind(field, at)
        if self._load:
            for validator in field.validators:
                part = _with_rule(part, validator, at)
        if field.allow_none and "null" not in part.get("type", ()):
            part = _or_null(part)
        notes: JsonSchema = {
            key: value
            for key in ("title", "description")
            if isinstance(value := field.metadata.get(key), str)
        }
        default = field.load_default
        if self._load and default is not missing and (default is None or _plain([default])):
            notes["default"] = default
        return part | notes

    def _kind(self, field: Any, at: str) -> JsonSchema:
        from marshmallow import fields

        if isinstance(stated := field.metadata.get("json_schema"), dict):
            return dict(stated)
        match field:
            case fields.Pluck():
                name = field.field_name
                part = self._field(field.schema.fields[name], f"{at}.{name}")
                return self._many(part, bool(field.many))
            case fields.Nested():
                return self._nested(field)
            case fields.List():
                return {"type": "array", "items": self._field(field.inner, f"{at}[]")}
            case fields.Tuple():
                parts = [self._field(each, f"{at}[{i}]") for i, each in enumerate(field.tuple_fields)]
                size = {"minItems": len(parts), "maxItems": len(parts), "items": False}
                return {"type": "array", "prefixItems": parts} | size
            case fields.Mapping():
                values = field.value_field
                inner = True if values is None else self._field(values, f"{at}{{}}")
                return {"type": "object", "additionalProperties": inner}
            case fields.Enum():
                by_value = field.by_value
                options = [option.value if by_value else option.name for option in cast("Any", field.enum)]
                return {"enum": options}
            case fields.Constant():
                return {"const": field.constant}
            case fields.Decimal():
                return {"type": ["number", "string"]}
            case fields.Integer():
                return {"type": "integer"}
            case fields.Float():
                return {"type": "number"}
            case fields.Boolean():
                return {"type": "boolean"}
            case fields.DateTime() | fields.Date() | fields.Time() if field.format in (
                None,
                "iso",
                "iso8601",
            ):
                kind = {"Date": "date", "Time": "time"}.get(type(field).__name__, "date-time")
                return {"type": "string", "format": kind}
            case fields.DateTime() if field.format in ("timestamp", "timestamp_ms"):
                return {"type": "number"}
            case fields.DateTime() | fields.Date() | fields.Time():
                return {"type": "string"}
            case fields.TimeDelta():
                return {"type": "number", "description": f"a duration in {field.precision}"}
            case _:
                return self._text(field, at)

    def _text(self, field: Any, at: str) -> JsonSchema:
        from marshmallow import fields

        formats = {
            fields.UUID: "uuid",
            fields.Url: "uri",
            fields.Email: "email",
            fields.IPv4: "ipv4",
            fields.IPv6: "ipv6",
        }
        for kind, name in formats.items():
            if isinstance(field, kind):
                return {"type": "string", "format": name}
        if isinstance(field, fields.String | fields.IP | fields.IPInterface):
            return {"type": "string"}
        if isinstance(field, fields.Raw) or not self._load:
            return {}
        raise FormRefused(
            f"{printable(at)}: nothing tells what JSON a {type(field).__name__} field takes; "
            "give it metadata={'json_schema': {…}}."
        )

    def _nested(self, field: Any) -> JsonSchema:
        schema = field.schema
        key = (type(schema), frozenset(schema.fields), schema.unknown, str(schema.partial))
        if (name := self._names.get(key)) is None:
            name = type(schema).__name__
            while name in self._definitions:
                name += "_"
            self._names[key] = name
            self._definitions[name] = {}
            self._definitions[name] = self._object(schema)
        return self._many({"$ref": f"#/$defs/{name}"}, bool(field.many or schema.many))


def _with_rule(part: JsonSchema, validator: Any, at: str) -> JsonSchema:
    """The schema with a validator's rule, for those validators of marshmallow that JSON Schema knows too."""
    from marshmallow import validate

    match validator:
        case validate.And():
            for each in validator.validators:
                part = _with_rule(part, each, at)
            return part
        case validate.Length(min=least, max=most, equal=exact):
            unit = "Items" if part.get("type") == "array" else "Length"
            least, most = (least, most) if exact is None else (exact, exact)
            return part | _stated({f"min{unit}": least, f"max{unit}": most})
        case validate.Range(min=least, max=most) if part.get("type") in ("integer", "number"):
            low = "minimum" if validator.min_inclusive else "exclusiveMinimum"
            high = "maximum" if validator.max_inclusive else "exclusiveMaximum"
            return part | _stated({low: least, high: most})
        case validate.Regexp(regex=regex) if regex.flags in (0, 32):
            # marshmallow looks for a match at the beginning.
            return part | {"pattern": f"^(?:{regex.pattern!s})"}
        case validate.ContainsOnly() if _plain(validator.choices) and part.get("type") == "array":
            return part
        case validate.OneOf() if _plain(validator.choices) and not isinstance(
            validator, validate.ContainsOnly
        ):
            return part | {"enum": list(validator.choices)}
        case validate.Equal() if _plain([validator.comparable]):
            return part | {"const": validator.comparable}
        case _:
            # It still runs; only the model is not told.
            return part


def _stated(rules: JsonSchema) -> JsonSchema:
    return {key: value for key, value in rules.items() if isinstance(value, int | float)}


def _plain(options: Iterable[object]) -> bool:
    return all(isinstance(option, str | int | float | bool) for option in options)


def _or_null(part: JsonSchema) -> JsonSchema:
    kind = part.get("type")
    if kind is not None and "enum" not in part and "const" not in part:
        return part | {"type": [*([kind] if isinstance(kind, str) else kind), "null"]}
    return {"anyOf": [part, {"type": "null"}]} if part else part
