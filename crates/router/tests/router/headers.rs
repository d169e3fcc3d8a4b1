//! Headers exchanges against the rules as one would say them.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use weir_model::routing::{ArgumentValue, Arguments};
use weir_router::{Route, Routed, Router};

use super::{Carried, binding, exchange, queue, queues};

fn fits(arguments: &[(String, ArgumentValue)], headers: &[(Bytes, ArgumentValue)]) -> bool {
    let mode = arguments.iter().find(|(name, _)| name == "x-match").and_then(|(_, value)| value.as_text());
    let with_x = matches!(mode, Some("all-with-x" | "any-with-x"));
    let (mut one_fits, mut all_fit) = (false, true);
    for (name, wanted) in arguments {
        if name == "x-match" || (name.starts_with("x-") && !with_x) {
            continue;
        }
        let found = headers.iter().rfind(|(known, _)| known == name.as_bytes()).map(|(_, value)| value);
        let fits = match (wanted, found) {
            (_, None) => false,
            (ArgumentValue::Void, Some(_)) => true,
            (wanted, Some(found)) => wanted.same_value(found),
        };
        one_fits |= fits;
        all_fit &= fits;
    }
    if matches!(mode, Some("any" | "any-with-x")) { one_fits } else { all_fit }
}

fn value() -> impl Strategy<Value = ArgumentValue> {
    prop_oneof![
        Just(ArgumentValue::Void),
        Just(ArgumentValue::text("red")),
        Just(ArgumentValue::text("blue")),
        (0i64..3).prop_map(ArgumentValue::Integer),
        (0u8..3).prop_map(|number| ArgumentValue::float(f64::from(number))),
        Just(ArgumentValue::Bool(true)),
    ]
}

fn table() -> impl Strategy<Value = Arguments> {
    let name = proptest::sample::select(&["a", "b", "c", "x-d", "x-e"][..]);
    proptest::collection::vec((name.prop_map(str::to_owned), value()), 0..4)
}

fn arguments() -> impl Strategy<Value = Arguments> {
    let mode = proptest::sample::select(&["", "all", "any", "all-with-x", "any-with-x"][..]);
    (mode, table()).prop_map(|(mode, mut arguments)| {
        if !mode.is_empty() {
            arguments.push(("x-match".into(), ArgumentValue::text(mode)));
        }
        arguments
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn bindings_match_as_their_rules_say(
        bound in proptest::collection::vec(arguments(), 1..20),
        messages in proptest::collection::vec(table(), 1..10),
    ) {
        let names: Vec<String> = (0..bound.len()).map(|number| number.to_string()).collect();
        let bindings = names.iter().zip(&bound).map(|(name, arguments)| (binding("h", queue(name), "", arguments.clone()), 0));
        let router = Router::build(names.iter().map(String::as_str), [exchange("h", "headers", vec![])], bindings)
            .expect("all of it is there");
        for message in messages {
            let headers = message.into_iter().map(|(name, value)| (Bytes::from(name), value)).collect();
            let carried = Carried { headers, ..Carried::default() };
            let mut route = Route::new();
            router.route(&Routed { properties: &carried, ..Routed::new("h", &[b""]) }, &mut route).expect("it is there");
            let wanted: BTreeSet<String> = names
                .iter()
                .zip(&bound)
                .filter(|(_, arguments)| fits(arguments, &carried.headers))
                .map(|(name, _)| name.clone())
                .collect();
            prop_assert_eq!(queues(&route), wanted);
        }
    }
}
