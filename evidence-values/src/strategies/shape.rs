//! Shapes describe the valid JSON values of a type, and invalid ones with exactly one error. Both come from
//! one description, so a new field of a body gets its invalid values together with its valid ones.

use std::fmt::Debug;

use proptest::collection::{SizeRange, btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Union;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Patterned;
use crate::decode;

/// A value with exactly one error.
#[derive(Debug, Clone, PartialEq)]
pub struct Invalid {
    /// The value.
    pub value: Value,
    /// The path that the error names, such as `artifacts[0].digests`; empty for the value as a whole.
    pub field: String,
}

impl Invalid {
    /// Creates a value that is invalid as a whole.
    pub fn whole(value: Value) -> Self {
        Self { value, field: String::new() }
    }

    /// Returns the path of the error in the value that has this one as its field `name`.
    fn path_below(&self, name: &str) -> String {
        let name = decode::shortened(name);
        match self.field.chars().next() {
            None | Some('[') => format!("{name}{}", self.field),
            Some(_) => format!("{name}.{}", self.field),
        }
    }
}

/// The valid and invalid JSON values of a type. All generated values shrink.
#[derive(Debug, Clone)]
pub struct Shape {
    valid: BoxedStrategy<Value>,
    invalid: BoxedStrategy<Invalid>,
}

impl Shape {
    /// Creates a shape from valid and invalid values. The invalid ones must not include null, because only a
    /// field can reject it.
    pub fn new(
        valid: impl Strategy<Value = Value> + 'static,
        invalid: impl Strategy<Value = Invalid> + 'static,
    ) -> Self {
        Self { valid: valid.boxed(), invalid: invalid.boxed() }
    }

    /// Creates a shape whose invalid values are these, each invalid as a whole.
    pub fn with_invalid(valid: impl Strategy<Value = Value> + 'static, wrong: Vec<Value>) -> Self {
        Self::new(valid, select(wrong).prop_map(Invalid::whole))
    }

    /// Returns the accepted values.
    pub fn valid(&self) -> BoxedStrategy<Value> {
        self.valid.clone()
    }

    /// Returns the rejected values, each with one error.
    pub fn invalid(&self) -> BoxedStrategy<Invalid> {
        self.invalid.clone()
    }

    /// Returns accepted values decoded as the type that the service uses.
    pub fn typed<T: DeserializeOwned + Debug>(&self) -> impl Strategy<Value = T> + use<T> {
        self.valid().prop_filter_map("the type accepts the value", |value| decode::from_value(&value).ok())
    }

    /// One of these shapes. A value that one of them rejects must not be valid for another.
    pub fn any_of(shapes: &[Self]) -> Self {
        Self::new(Union::new(shapes.iter().map(Self::valid)), Union::new(shapes.iter().map(Self::invalid)))
    }

    /// Adds valid values, which may repeat existing ones to make them more frequent.
    #[must_use]
    pub fn or_valid(self, valid: impl Strategy<Value = Value> + 'static) -> Self {
        Self { valid: Union::new([self.valid, valid.boxed()]).boxed(), ..self }
    }

    /// Adds invalid values of another kind.
    #[must_use]
    pub fn or_invalid(self, invalid: impl Strategy<Value = Invalid> + 'static) -> Self {
        Self { invalid: Union::new([self.invalid, invalid.boxed()]).boxed(), ..self }
    }

    /// A text of a validated type.
    pub fn of<T: Patterned>() -> Self {
        let invalid = prop_oneof![
            3 => super::misfits::<T>().prop_map(Value::from),
            1 => select(not_texts()),
        ];
        Self::new(super::fitting::<T>().prop_map(Value::from), invalid.prop_map(Invalid::whole))
    }

    /// Any text without the NUL character.
    pub fn text() -> Self {
        Self::with_invalid(
            super::printable().prop_map(Value::from),
            [not_texts(), vec![json!("nul\u{0}")]].concat(),
        )
    }

    /// A text of `least` to `most` characters.
    pub fn text_between(least: usize, most: usize) -> Self {
        let fits = move |text: &String| (least..=most).contains(&text.chars().count());
        let valid = prop_oneof![29 => super::printable().prop_filter("of a fitting length", fits), 1 => Just("é".repeat(most))];
        let mut wrong = vec![json!("é".repeat(most + 1))];
        wrong.extend(least.checked_sub(1).map(|short| json!("é".repeat(short))));
        Self::with_invalid(valid.prop_map(Value::from), [not_texts(), wrong].concat())
    }

    /// One of these texts.
    pub fn choice(texts: &'static [&'static str]) -> Self {
        let wrong = [not_texts(), vec![json!(""), json!("nonsense")]].concat();
        Self::with_invalid(select(texts).prop_map(Value::from), wrong)
    }

    /// True or false.
    pub fn boolean() -> Self {
        Self::with_invalid(
            any::<bool>().prop_map(Value::from),
            vec![json!("true"), json!(0), json!([]), json!({})],
        )
    }

    /// An integer between two bounds, both included.
    pub fn integer(least: i64, most: i64) -> Self {
        let valid = prop_oneof![8 => least..=most, 1 => Just(least), 1 => Just(most)];
        let beyond = [least.checked_sub(1), most.checked_add(1)].into_iter().flatten().map(Value::from);
        let wrong = vec![json!("1"), json!(1.5), json!(true), json!([]), json!({})];
        Self::with_invalid(valid.prop_map(Value::from), wrong.into_iter().chain(beyond).collect())
    }

    /// A list of items of this shape.
    pub fn list(item: &Self, size: impl Into<SizeRange>) -> Self {
        let around = || vec(item.valid(), 0..2);
        let one = (around(), item.invalid(), around()).prop_map(|(mut items, invalid, after)| {
            let field = invalid.path_below(&format!("[{}]", items.len()));
            items.push(invalid.value);
            items.extend(after);
            Invalid { value: items.into(), field }
        });
        let no_list = select(vec![json!(""), json!(1), json!({})]).prop_map(Invalid::whole);
        Self::new(vec(item.valid(), size).prop_map(Value::from), prop_oneof![3 => one, 1 => no_list])
    }

    /// Limits the list to at most `most` items.
    #[must_use]
    pub fn at_most(self, item: &Self, most: usize) -> Self {
        let long = item.valid().prop_map(move |item| Invalid::whole(vec![item; most + 1].into()));
        self.or_invalid(long)
    }

    /// An object with keys from `keys` and values of one shape.
    pub fn map(keys: &BoxedStrategy<String>, value: &Self, size: impl Into<SizeRange>) -> Self {
        let entry = (keys.clone(), value.invalid()).prop_map(|(key, invalid)| {
            let field = invalid.path_below(&key);
            Invalid { value: json!({ key: invalid.value }), field }
        });
        let no_map = select(vec![json!(""), json!(1), json!([])]).prop_map(Invalid::whole);
        let valid = btree_map(keys.clone(), value.valid(), size).prop_map(|entries| json!(entries));
        Self::new(valid, prop_oneof![3 => entry, 1 => no_map])
    }
}

fn not_texts() -> Vec<Value> {
    vec![json!(7), json!(true), json!([]), json!({})]
}

/// The name of the unknown field that a closed object rejects.
const UNEXPECTED: &str = "unexpected";

/// Whether a field may be absent or null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// The field must be present and not null.
    Required,
    /// The field must be present, and may be null.
    Nullable,
    /// The field may be absent or null.
    Optional,
    /// The field may be absent, but not null.
    Defaulted,
    /// The field is always generated, although the service does not require it.
    Always,
}

impl Presence {
    fn strategy(self, valid: BoxedStrategy<Value>) -> BoxedStrategy<Option<Value>> {
        let given = valid.prop_map(Some);
        match self {
            Self::Required | Self::Always => given.boxed(),
            Self::Nullable => prop_oneof![1 => Just(Some(Value::Null)), 4 => given].boxed(),
            Self::Optional => prop_oneof![4 => Just(None), 1 => Just(Some(Value::Null)), 5 => given].boxed(),
            Self::Defaulted => prop_oneof![Just(None), given].boxed(),
        }
    }

    /// Returns the invalid forms of the field without a value: absent, null.
    fn refused(self) -> Vec<Option<Value>> {
        match self {
            Self::Required => vec![None, Some(Value::Null)],
            Self::Nullable => vec![None],
            Self::Defaulted => vec![Some(Value::Null)],
            Self::Optional | Self::Always => Vec::new(),
        }
    }
}

#[derive(Debug, Clone)]
struct Field {
    name: &'static str,
    shape: Shape,
    presence: Presence,
}

/// A builder of an object, field by field.
#[derive(Debug, Clone, Default)]
pub struct Object {
    fields: Vec<Field>,
    closed: bool,
}

/// An invalid field: its name, its value unless it is absent, and the path that the error names.
type InvalidField = (&'static str, Option<Value>, String);

impl Object {
    /// Creates an object without fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field that must be present and not null.
    #[must_use]
    pub fn required(self, name: &'static str, shape: Shape) -> Self {
        self.with(name, shape, Presence::Required)
    }

    /// Adds a field that must be present and may be null.
    #[must_use]
    pub fn nullable(self, name: &'static str, shape: Shape) -> Self {
        self.with(name, shape, Presence::Nullable)
    }

    /// Adds a field that may be absent or null.
    #[must_use]
    pub fn optional(self, name: &'static str, shape: Shape) -> Self {
        self.with(name, shape, Presence::Optional)
    }

    /// Adds a field that may be absent, but not null.
    #[must_use]
    pub fn defaulted(self, name: &'static str, shape: Shape) -> Self {
        self.with(name, shape, Presence::Defaulted)
    }

    /// Adds a field that is always generated, although the service does not require it.
    #[must_use]
    pub fn always(self, name: &'static str, shape: Shape) -> Self {
        self.with(name, shape, Presence::Always)
    }

    fn with(mut self, name: &'static str, shape: Shape, presence: Presence) -> Self {
        self.fields.push(Field { name, shape, presence });
        self
    }

    /// Makes the object reject unknown fields.
    #[must_use]
    pub const fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    /// Returns the shape of the object.
    pub fn shape(&self) -> Shape {
        let names: Vec<&'static str> = self.fields.iter().map(|field| field.name).collect();
        let values: Vec<_> =
            self.fields.iter().map(|field| field.presence.strategy(field.shape.valid())).collect();
        let valid = values.prop_map(move |values| object(&names, values)).boxed();
        let no_object = select(vec![json!("text"), json!(7), json!([])]).prop_map(Invalid::whole).boxed();
        let mut invalid = vec![(1, no_object)];
        invalid
            .extend(self.invalid_fields().into_iter().map(|one| (5, with_invalid_field(one, valid.clone()))));
        Shape::new(valid, Union::new_weighted(invalid))
    }

    fn invalid_fields(&self) -> Vec<BoxedStrategy<InvalidField>> {
        let unexpected =
            self.closed.then(|| Just((UNEXPECTED, Some(json!(1)), UNEXPECTED.to_owned())).boxed());
        self.fields.iter().map(Field::invalid_fields).chain(unexpected).collect()
    }
}

impl Field {
    fn invalid_fields(&self) -> BoxedStrategy<InvalidField> {
        let name = self.name;
        let value = self.shape.invalid().prop_map(move |invalid| {
            let field = invalid.path_below(name);
            (name, Some(invalid.value), field)
        });
        let refused = self.presence.refused();
        if refused.is_empty() {
            return value.boxed();
        }
        let refused = select(refused).prop_map(move |value| (name, value, name.to_owned()));
        prop_oneof![3 => value, 1 => refused].boxed()
    }
}

fn with_invalid_field(
    one: BoxedStrategy<InvalidField>,
    objects: BoxedStrategy<Value>,
) -> BoxedStrategy<Invalid> {
    let invalid = |(object, (name, value, field))| Invalid { value: replaced(object, name, value), field };
    (objects, one).prop_map(invalid).boxed()
}

fn object(names: &[&'static str], values: Vec<Option<Value>>) -> Value {
    let given = names.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
    Value::Object(given.collect())
}

/// Returns the object with another value of a field, or without the field.
fn replaced(object: Value, name: &str, value: Option<Value>) -> Value {
    let Value::Object(fields) = object else { return object };
    let mut fields: Map<String, Value> = fields.into_iter().filter(|(field, _)| field != name).collect();
    fields.extend(value.map(|value| (name.to_owned(), value)));
    Value::Object(fields)
}
