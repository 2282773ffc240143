"""How structs are described in the OpenAPI document.

Litestar's own description of a struct knows neither defaults that are structs or lists, nor that no further field is
taken.
"""

import inspect
import types
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import msgspec
from litestar.plugins import OpenAPISchemaPlugin
from litestar.plugins.core._msgspec import kwarg_definition_from_field
from litestar.types import Empty
from litestar.typing import FieldDefinition
from msgspec import NODEFAULT, UNSET, UnsetType

if TYPE_CHECKING:
    from litestar._openapi.schema_generation import SchemaCreator
    from litestar.openapi.spec import Schema


class StructSchemas(OpenAPISchemaPlugin):
    """Put before Litestar's own; the first that knows a type describes it."""

    def is_plugin_supported_field(self, field_definition: FieldDefinition) -> bool:
        return not field_definition.is_union and field_definition.is_subclass_of(msgspec.Struct)

    def to_openapi_schema(self, field_definition: FieldDefinition, schema_creator: "SchemaCreator") -> "Schema":
        hints = field_definition.get_type_hints(include_extras=True, resolve_generics=True)
        struct: type[msgspec.Struct] = field_definition.type_
        info = msgspec.inspect.type_info(struct)
        assert isinstance(info, msgspec.inspect.StructType)
        properties: dict[str, FieldDefinition] = {}
        for field in info.fields:
            options: dict[str, Any] = {}
            if constraints := kwarg_definition_from_field(field)[0]:
                options["kwarg_definition"] = constraints
            properties[field.encode_name] = FieldDefinition.from_annotation(
                annotation=_settable(hints[field.name]), name=field.encode_name, default=_default(field), **options
            )
        schema = schema_creator.create_component_schema(
            field_definition,
            required=sorted(field.encode_name for field in info.fields if field.required),
            property_fields=properties,
        )
        schema.description = inspect.cleandoc(struct.__doc__ or "")
        if info.forbid_unknown_fields:
            schema.additional_properties = False
        return schema


def _default(field: msgspec.inspect.Field) -> Any:
    default = field.default_factory() if field.default_factory is not NODEFAULT else field.default
    if default is NODEFAULT or default is UNSET or default is None:
        return Empty
    return msgspec.to_builtins(default)


def _settable(hint: Any) -> Any:
    """A field's type without the mark for "left out"."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    return Union[tuple(arm for arm in get_args(hint) if arm is not UnsetType)]  # noqa: UP007 - made at run time
