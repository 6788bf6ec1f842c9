"""pydantic, when the user brings it."""

import datetime as dt
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Literal

import pydantic
import pytest
from jsonschema_rs import Draft202012Validator
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, HttpUrl, computed_field

from antiphon.shapes import Mismatch, form_of, shape_of, signature_of


class Item(BaseModel):
    name: str
    price: Decimal = Decimal(1)
    made: dt.date | None = None


class Basket(BaseModel):
    items: list[Item]
    owner: str = Field("nobody", alias="belongsTo")


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


@dataclass
class Order:
    basket: Basket
    extra: Item | None = None


def test_pydantic_is_never_imported_by_us():
    probe = (
        "import sys, dataclasses, antiphon.shapes as s\n"
        "@dataclasses.dataclass\n"
        "class A:\n    x: int\n"
        "s.shape_of(list[A]).write(s.shape_of(list[A]).read([{'x': 1}])); s.form_of(A); s.signature_of(lambda a: a)\n"
        "assert not {'pydantic', 'jsonschema_rs'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", probe], check=True)


def test_a_model_has_pydantics_schema():
    assert shape_of(Item).schema == Item.model_json_schema()
    assert shape_of(Tree).schema["type"] == "object"
    assert Draft202012Validator(shape_of(Tree).schema).is_valid({"value": 1, "children": [{"value": 2}]})


def test_a_model_is_read_and_written_by_pydantic():
    wire = {"items": [{"name": "a", "price": "1.50", "made": "2026-07-28"}], "belongsTo": "ada"}
    basket = shape_of(Basket).read(wire)
    assert basket == Basket(items=[Item(name="a", price=Decimal("1.50"), made=dt.date(2026, 7, 28))], belongsTo="ada")
    assert shape_of(Basket).write(basket) == wire


def test_models_nest_in_everything_else():
    shape = shape_of(dict[str, list[Order]])
    wire = {"a": [{"basket": {"items": [{"name": "x"}]}, "extra": {"name": "y"}}]}
    read = shape.read(wire)
    assert read == {"a": [Order(Basket(items=[Item(name="x")]), Item(name="y"))]}
    assert Draft202012Validator(shape.schema).is_valid(wire)
    assert set(shape.schema["$defs"]) == {"Item"}
    written = shape.write(read)
    assert written["a"][0]["extra"] == {"name": "y", "price": "1", "made": None}
    assert shape.read(written) == read


def test_a_mismatch_inside_a_model_has_its_whole_path():
    with pytest.raises(Mismatch) as caught:
        shape_of(list[Order]).read([{"basket": {"items": [{"name": "x"}, {"name": 1}]}}])
    assert caught.value.path == "[0].basket.items[1].name"
    assert "string" in caught.value.problem


def test_a_result_is_checked_against_the_schema():
    assert shape_of(list[Item]).write([{"name": "x"}]) == [{"name": "x"}]
    with pytest.raises(Mismatch, match=r"^'\[0\]\.name': expected string, got integer$"):
        shape_of(list[Item]).write([{"name": 1}])
    with pytest.raises(Mismatch):
        shape_of(Item).write(Item.model_construct(name=5))


def test_an_output_promises_what_pydantic_writes():
    class Square(BaseModel):
        model_config = ConfigDict(extra="forbid")
        side: int

        @computed_field
        @property
        def area(self) -> int:
            return self.side**2

    shape = shape_of(Square, output=True)
    assert shape.schema["required"] == ["side", "area"]
    assert shape.write(Square(side=2)) == {"side": 2, "area": 4}
    with pytest.raises(Mismatch):
        shape_of(Square).read({"side": 2, "area": 4})


def test_models_of_one_name_keep_apart():
    def made(kind):
        class Same(BaseModel):
            value: kind

        return Same

    one, two = made(int), made(str)
    schema = shape_of(tuple[one, one, two, two]).schema
    assert set(schema["$defs"]) == {"Same", "Same_2"}
    assert Draft202012Validator(schema).is_valid([{"value": 1}, {"value": 1}, {"value": "a"}, {"value": "a"}])
    assert not Draft202012Validator(schema).is_valid([{"value": 1}, {"value": 1}, {"value": "a"}, {"value": 1}])


def test_unions_of_models_and_others_are_told_apart():
    shape = shape_of(Item | Tree | int)
    assert shape.read({"value": 1}) == Tree(value=1)
    assert shape.read({"name": "x"}) == Item(name="x")
    assert shape.read(5) == 5
    with pytest.raises(Mismatch, match="fits none of"):
        shape.read("x")


def test_a_discriminator_is_pydantics_business():
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]
        tricks: list[str]

    def adopt(pet: Annotated[Cat | Dog, Field(discriminator="kind")]):
        """Adopt."""

    signature = signature_of(adopt)
    mapping = signature.schema["properties"]["pet"]["discriminator"]["mapping"]
    assert {pointer.removeprefix("#/$defs/") for pointer in mapping.values()} == set(signature.schema["$defs"])
    assert signature.read({"pet": {"kind": "dog", "tricks": []}}) == {"pet": Dog(kind="dog", tricks=[])}


def test_field_says_what_a_parameter_is():
    def f(
        limit: int = Field(10, ge=1, le=50, description="At most."),
        name: Annotated[str, Field(min_length=1, pattern="^a", title="Name", examples=["ab"])] = "a",
        must: str = Field(description="Needed."),
        made: list[int] = Field(default_factory=list),
    ):
        """F."""

    signature = signature_of(f)
    assert signature.schema["properties"] == {
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "At most.", "default": 10},
        "name": {
            "type": "string",
            "minLength": 1,
            "pattern": "^a",
            "title": "Name",
            "examples": ["ab"],
            "default": "a",
        },
        "must": {"type": "string", "description": "Needed."},
        "made": {"type": "array", "items": {"type": "integer"}, "default": []},
    }
    assert signature.schema["required"] == ["must"]
    assert signature.read({"must": "x"}) == {"limit": 10, "name": "a", "must": "x", "made": []}
    with pytest.raises(Mismatch, match="'limit': expected int <= 50, got 51"):
        signature.read({"must": "x", "limit": 51})


def test_pydantics_own_types_and_validators_work():
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    def f(n: Annotated[int, AfterValidator(even)], link: HttpUrl, size: pydantic.PositiveInt = 1):
        """F."""

    signature = signature_of(f)
    assert signature.schema["properties"]["n"] == {"type": "integer"}
    assert signature.schema["properties"]["link"]["format"] == "uri"
    assert signature.schema["properties"]["size"] == {"type": "integer", "exclusiveMinimum": 0, "default": 1}
    assert signature.read({"n": 2, "link": "https://example.com"})["link"].host == "example.com"
    with pytest.raises(Mismatch, match="'n': value error, odd"):
        signature.read({"n": 1, "link": "https://example.com"})
    with pytest.raises(Mismatch, match="'link'"):
        signature.read({"n": 2, "link": "nowhere"})


def test_pydantic_dataclasses_are_read_by_pydantic():
    @pydantic.dataclasses.dataclass
    class Point:
        x: int = Field(ge=0)

    assert shape_of(list[Point]).read([{"x": 1}]) == [Point(1)]
    with pytest.raises(Mismatch):
        shape_of(list[Point]).read([{"x": -1}])
    assert shape_of(list[Point]).write([Point(1)]) == [{"x": 1}]


def test_a_flat_model_is_a_form():
    class Profile(BaseModel):
        name: str = Field(min_length=2, title="Your name", alias="fullName")
        level: Literal["a", "b"] = "a"
        age: int | None = Field(None, ge=0)

        @pydantic.field_validator("name")
        @classmethod
        def capitalised(cls, value: str) -> str:
            if not value[0].isupper():
                raise ValueError("must be capitalised")
            return value

    form = form_of(Profile)
    assert form.name == "profile"
    assert form.schema == {
        "type": "object",
        "properties": {
            "fullName": {"type": "string", "minLength": 2, "title": "Your name"},
            "level": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "age": {"type": "integer", "minimum": 0},
        },
        "required": ["fullName"],
    }
    assert form.read({"fullName": "Ada"}) == Profile(fullName="Ada")
    with pytest.raises(Mismatch, match="must be capitalised"):
        form.read({"fullName": "ada"})


def test_a_nested_model_is_no_form():
    with pytest.raises(TypeError, match="'items'"):
        form_of(Basket)
    with pytest.raises(TypeError, match="'basket'.*do not nest"):
        form_of(Order)


def test_pydantic_types_of_the_wire_are_form_fields():
    form = form_of(HttpUrl)
    assert form.schema["properties"]["value"]["format"] == "uri"
    assert form.read({"value": "https://example.com"}).host == "example.com"
