"""`tool`: a function that the model can call, with a schema that every call is held against."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

from typing_extensions import Unpack

from perdure.schema import (
    Arguments,
    Failure,
    FormRefused,
    Schema,
    StandardSchema,
    Success,
    schema_of,
)
from perdure.schema.forms import Loading
from perdure.sdk.calls import ToolResult
from perdure.sdk.context import ToolContext
from perdure.sdk.errors import DefinitionRefused
from perdure.sdk.outputs import succeeded
from perdure.sdk.threads import call

if TYPE_CHECKING:
    from perdure.sdk.run_once import OnUnknown

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
CONTEXT = "context"
TIMEOUT = 120.0

Failing: TypeAlias = Literal["report", "raise"] | Callable[[ToolContext[Any], Exception], str]
OutputForm: TypeAlias = type[Any] | Mapping[str, Any] | Schema[Any]


class TakesContext(Protocol[T_contra, R_co]):
    """A function of the validated value that also wants the context."""

    def __call__(self, value: T_contra, /, context: ToolContext[Any]) -> R_co: ...


class ToolOptions(TypedDict, total=False):
    """The options of `tool`, all of them optional; `tool` describes them."""

    name: str
    description: str
    output_schema: OutputForm | None
    strict: bool
    timeout: float | None
    idempotent: bool
    on_unknown: OnUnknown
    on_failure: Failing
    background: bool
    defer_loading: bool


class Tool(Generic[P, R]):
    """A function tool. Make one with `tool`; calling it calls the function, as in a test of yours.

    Attributes:
        name: what the model calls.
        schema: of the arguments; `schema.json_schema` is what the model sees.
        output_schema: of the result, or None.
        timeout: seconds that a call may take; None for no limit.
        idempotent: whether running a call twice does no harm.
        on_unknown: what to do about a call that was begun and of which nobody knows the end.
        on_failure: what becomes of an exception.
        background: whether the agent goes on without the result.
    """

    name: str
    description: str

    def __init__(
        self, function: Callable[P, R], parameters: Any, options: ToolOptions, *, unpacks: bool
    ) -> None:
        self.function = function
        self.name = options.get("name") or str(getattr(function, "__name__", ""))
        check_name(self.name, "tool")
        self.description = options.get("description") or _described(function)
        if not self.description:
            raise DefinitionRefused(
                f"The tool {self.name} has no description, and a model chooses by it: write a docstring or "
                "pass description=."
            )
        strict = options.get("strict", True)
        self._takes_context = _takes_context(function)
        self._unpacks = unpacks
        self.schema: Schema[Any] = (
            schema_of(function, strict=strict, skip=(CONTEXT,))
            if unpacks
            else schema_of(parameters, strict=strict)
        )
        self.output_schema = _output_schema(self.name, options.get("output_schema"))
        self.timeout = options.get("timeout", TIMEOUT)
        if self.timeout is not None and not self.timeout > 0:
            raise DefinitionRefused(f"The tool {self.name}: timeout is in seconds, above zero, or None.")
        self.idempotent = options.get("idempotent", False)
        self.on_unknown: OnUnknown = options.get("on_unknown", "fail")
        if self.on_unknown == "retry" and not self.idempotent:
            raise DefinitionRefused(
                f'The tool {self.name}: on_unknown="retry" may run a call twice, so it needs idempotent=True.'
            )
        self.on_failure: Failing = options.get("on_failure", "report")
        self.background = options.get("background", False)
        self.defer_loading = options.get("defer_loading", False)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as an agent's configuration has it."""
        return definition(self)

    def parse(self, arguments: object) -> Success[Any] | Failure:
        """Validate the arguments of a call, as an object or as JSON text. Raises ValidatorFault."""
        return parsed(self.schema, arguments)

    async def invoke(self, value: Any, context: ToolContext[Any]) -> Any:
        """Run the function with validated arguments; a synchronous one in a thread of its own."""
        extra = {CONTEXT: context} if self._takes_context else {}
        if isinstance(value, Arguments) and self._unpacks:
            return await call(lambda: value.call(self.function, **extra), self.function)
        function: Callable[..., Any] = self.function
        return await call(lambda: function(value, **extra), function)

    def result(self, value: Any) -> ToolResult:
        """What the function returned, as a result. Raises OutputInvalid, ValidatorFault."""
        return succeeded(self.name, value, self.output_schema)


class Served(Protocol):
    """What a session can answer a call with: a tool, an agent as a tool, a handoff."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> Schema[Any]: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def on_unknown(self) -> OnUnknown: ...
    @property
    def on_failure(self) -> Failing: ...
    @property
    def background(self) -> bool: ...
    @property
    def defer_loading(self) -> bool: ...
    async def invoke(self, value: Any, context: ToolContext[Any]) -> Any: ...
    def result(self, value: Any) -> ToolResult: ...


def definition(tool: Served) -> dict[str, Any]:
    """A function as an agent's configuration has it."""
    made: dict[str, Any] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema.json_schema,
    }
    if tool.background:
        made["async"] = True
    if tool.defer_loading:
        made["defer_loading"] = True
    return made


def parsed(schema: Schema[T], arguments: object) -> Success[T] | Failure:
    """Arguments as the protocol brings them: an object, or JSON text of one. Raises ValidatorFault."""
    return schema.parse_arguments(arguments) if isinstance(arguments, str) else schema.validate(arguments)


def check_name(name: str, what: str) -> None:
    """Raises DefinitionRefused unless every provider accepts the name of the function."""
    if not NAME.fullmatch(name):
        raise DefinitionRefused(
            f"{name[:64]!r} is no name for a {what}: 1 to 64 letters, digits, _ and -. Pass name=."
        )


class ToolDecorator(Protocol[T]):
    """`@tool(parameters=…)`: takes a function of the validated value."""

    @overload
    def __call__(self, function: Callable[[T], R], /) -> Tool[[T], R]: ...
    @overload
    def __call__(self, function: TakesContext[T, R], /) -> Tool[[T, ToolContext[Any]], R]: ...


class SignatureDecorator(Protocol):
    """`@tool(…)` without parameters: the signature of the function is the schema."""

    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(function: Callable[P, R], /, **options: Unpack[ToolOptions]) -> Tool[P, R]: ...
@overload
def tool(
    function: Callable[[T], R],
    /,
    *,
    parameters: Schema[T] | StandardSchema[Any, T],
    **options: Unpack[ToolOptions],
) -> Tool[[T], R]: ...
@overload
def tool(
    function: Callable[[Any], R],
    /,
    *,
    parameters: type[Loading] | Loading | Mapping[str, Any],
    **options: Unpack[ToolOptions],
) -> Tool[[Any], R]: ...
@overload
def tool(
    function: Callable[[T], R], /, *, parameters: type[T], **options: Unpack[ToolOptions]
) -> Tool[[T], R]: ...
@overload
def tool(
    function: TakesContext[T, R],
    /,
    *,
    parameters: Schema[T] | StandardSchema[Any, T],
    **options: Unpack[ToolOptions],
) -> Tool[[T, ToolContext[Any]], R]: ...
@overload
def tool(
    function: TakesContext[Any, R],
    /,
    *,
    parameters: type[Loading] | Loading | Mapping[str, Any],
    **options: Unpack[ToolOptions],
) -> Tool[[Any, ToolContext[Any]], R]: ...
@overload
def tool(
    function: TakesContext[T, R], /, *, parameters: type[T], **options: Unpack[ToolOptions]
) -> Tool[[T, ToolContext[Any]], R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> SignatureDecorator: ...
@overload
def tool(
    *, parameters: Schema[T] | StandardSchema[Any, T], **options: Unpack[ToolOptions]
) -> ToolDecorator[T]: ...
@overload
def tool(
    *, parameters: type[Loading] | Loading | Mapping[str, Any], **options: Unpack[ToolOptions]
) -> ToolDecorator[Any]: ...
@overload
def tool(*, parameters: type[T], **options: Unpack[ToolOptions]) -> ToolDecorator[T]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    parameters: Any = None,
    **options: Unpack[ToolOptions],
) -> Any:
    """A function that the model can call; use it as a decorator or as a function.

    Without `parameters`, the annotated signature is the schema, and the function is called with its
    arguments. With `parameters`, of any form that `schema_of` takes, it is called with the one validated
    value. A parameter named `context` gets a `ToolContext` in either case, and the model does not see it.
    The function may be asynchronous; a synchronous one runs in a thread of its own.

    Args:
        function: the function; left out, `tool(…)` is a decorator.
        parameters: the schema of the arguments.
        name: what the model calls; the function's name by default.
        description: what the model chooses by; the docstring's first paragraph by default.
        output_schema: a type or JSON Schema that results are held against. No StandardSchema.
        strict: bring the schema into strict form. A StandardSchema is always strict.
        timeout: seconds that one call may take, 120 by default; None for no limit. A thread cannot be
            stopped: the model is told that the call may still be running.
        idempotent: running a call twice does no harm.
        on_unknown: what to do when a call was begun, by this process or another one, and its end is not
            known: "fail" tells the model so, "retry" runs it again and needs `idempotent`, and a function
            gets the call and finds out: it returns a `ToolResult`, or `Retry()`.
        on_failure: what becomes of an exception: "report" tells the model that the tool failed and the name
            of the exception, "raise" ends the run with it, and a function of context and exception returns
            what to tell the model. `ToolError` always reaches the model with its message.
        background: the agent goes on without the result, which reaches it as a note (`async` in the
            protocol).
        defer_loading: the model sees the tool only after searching for it.

    Raises:
        DefinitionRefused, FormRefused, SchemaRefused: at once, and with what is to be changed.
    """
    if function is None:
        return lambda decorated: Tool(decorated, parameters, options, unpacks=parameters is None)
    if not callable(function):
        raise FormRefused("tool() takes a function, or keyword arguments to decorate one with.")
    return Tool(function, parameters, options, unpacks=parameters is None)


def _described(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    return " ".join((text or "").partition("\n\n")[0].split())


def _takes_context(function: Callable[..., Any]) -> bool:
    try:
        return CONTEXT in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _output_schema(name: str, form: Any) -> Schema[Any] | None:
    if form is None:
        return None
    try:
        schema: Schema[Any] = form if isinstance(form, Schema) else schema_of(form, strict=False)
    except FormRefused:
        # A StandardSchema has no loose form; whatever else is wrong is told again.
        schema = schema_of(form)
    if schema.form == "standard":
        raise FormRefused(
            f"The tool {name}: output_schema takes a Python type or JSON Schema, no StandardSchema. Validate "
            "the result in the function."
        )
    return schema
