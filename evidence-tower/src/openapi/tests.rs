//! Tests of the schemas of responses.

use std::collections::BTreeSet;

use super::*;

/// The schemas of all responses, by one of the two contracts.
struct Responses(SchemaGenerator);

impl Visitor for Responses {
    fn visit<O: Operation>(&mut self) {
        O::Output::schema(&mut self.0);
    }
}

impl Responses {
    /// Returns the names of the required fields, by the path of their object in the document.
    fn required(settings: SchemaSettings) -> BTreeSet<(String, String)> {
        let mut responses = Self(settings.into_generator());
        api::operations(&mut responses);
        let mut required = BTreeSet::new();
        for (name, schema) in responses.0.take_definitions(true) {
            collect(&schema, &name, &mut required);
        }
        required
    }
}

fn collect(schema: &Value, path: &str, required: &mut BTreeSet<(String, String)>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(names)) = fields.get("required") {
                let names = names.iter().filter_map(Value::as_str);
                required.extend(names.map(|name| (path.to_owned(), name.to_owned())));
            }
            fields.iter().for_each(|(key, value)| collect(value, &format!("{path}/{key}"), required));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| collect(item, &format!("{path}/{n}"), required));
        }
        _ => {}
    }
}

#[test]
fn no_response_requires_a_field_that_may_be_absent() {
    let documented = Responses::required(SchemaSettings::draft2020_12());
    let serialized = Responses::required(SchemaSettings::draft2020_12().for_serialize());
    assert!(documented.len() > 500, "{}", documented.len());
    let wrong: Vec<_> = documented.difference(&serialized).collect();
    assert!(wrong.is_empty(), "`#[serde(default)]` is missing at {wrong:#?}");
}
