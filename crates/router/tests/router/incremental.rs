//! A router that was changed step by step is the one that is built of the same things at once, and those
//! that were held on to on the way are as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_model::routing::{BindingMeta, Destination, ExchangeMeta};
use weir_router::{Removal, Route, Routed, Router};

use super::{binding, exchange, queue, queues};

/// Kinds of the exchanges `x0`, `x1` and so on; every second one is auto-delete.
const KINDS: &[&str] =
    &["direct", "fanout", "topic", "x-modulus-hash", "x-random", "x-consistent-hash", "headers"];
const QUEUES: usize = 6;
const KEYS: &[&str] = &["1", "2", "a.b", "a.*", "#", ""];

#[derive(Clone, Debug)]
enum Step {
    Queue(usize),
    Exchange(usize),
    Bind(Arc<BindingMeta>),
    /// One of those that are there.
    Unbind(Index),
    /// Most likely one that is not.
    UnbindAny(Arc<BindingMeta>),
    DeleteQueue(usize),
    DeleteExchange(usize),
}

fn bindings() -> impl Strategy<Value = Arc<BindingMeta>> {
    let destination = prop_oneof![
        3 => (0..QUEUES).prop_map(|number| queue(&queue_name(number))),
        1 => (0..KINDS.len()).prop_map(|number| Destination::Exchange(exchange_name(number))),
    ];
    (0..KINDS.len(), destination, proptest::sample::select(KEYS))
        .prop_map(|(source, destination, key)| binding(&exchange_name(source), destination, key, vec![]))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..QUEUES).prop_map(Step::Queue),
        3 => (0..KINDS.len()).prop_map(Step::Exchange),
        12 => bindings().prop_map(Step::Bind),
        6 => any::<Index>().prop_map(Step::Unbind),
        1 => bindings().prop_map(Step::UnbindAny),
        1 => (0..QUEUES).prop_map(Step::DeleteQueue),
        1 => (0..KINDS.len()).prop_map(Step::DeleteExchange),
    ]
}

fn queue_name(number: usize) -> String {
    format!("q{number}")
}

fn exchange_name(number: usize) -> String {
    format!("x{number}")
}

fn declared(number: usize) -> Arc<ExchangeMeta> {
    let meta = exchange(&exchange_name(number), KINDS[number], vec![]);
    Arc::new(ExchangeMeta { auto_delete: number % 2 == 1, ..(*meta).clone() })
}

/// What there is, in plain sets.
#[derive(Clone, Debug, Default)]
struct Model {
    queues: BTreeSet<String>,
    exchanges: BTreeMap<String, Arc<ExchangeMeta>>,
    bindings: BTreeMap<Arc<BindingMeta>, u64>,
}

impl Model {
    fn has(&self, destination: &Destination) -> bool {
        match destination {
            Destination::Queue(name) => self.queues.contains(name),
            Destination::Exchange(name) => self.exchanges.contains_key(name),
        }
    }

    /// Whether the binding may be there: whether both its ends are, and its key is a weight where only
    /// weights are keys.
    fn takes(&self, binding: &BindingMeta) -> bool {
        let weighs = |exchange: &Arc<ExchangeMeta>| {
            exchange.kind.name() != "x-consistent-hash" || matches!(&binding.key[..], b"1" | b"2")
        };
        self.exchanges.get(&binding.source).is_some_and(weighs) && self.has(&binding.destination)
    }

    /// Removes bindings, and says which exchanges lost their last one.
    fn remove(&mut self, gone: impl Fn(&BindingMeta) -> bool) -> (Vec<Arc<BindingMeta>>, Vec<String>) {
        let fallen: Vec<_> = self.bindings.keys().filter(|binding| gone(binding)).cloned().collect();
        fallen.iter().for_each(|binding| {
            self.bindings.remove(binding);
        });
        let sources: BTreeSet<&String> = fallen.iter().map(|binding| &binding.source).collect();
        let is_unused = |name: &&&String| {
            self.exchanges.get(**name).is_some_and(|exchange| exchange.auto_delete)
                && !self.bindings.keys().any(|left| left.source == ***name)
        };
        let unused = sources.iter().filter(is_unused).map(|name| name.to_string()).collect();
        (fallen, unused)
    }

    fn built(&self) -> Router {
        Router::build(
            self.queues.iter().map(String::as_str),
            self.exchanges.values().cloned(),
            self.bindings.iter().map(|(binding, serial)| (Arc::clone(binding), *serial)),
        )
        .expect("everything that is bound is there")
    }
}

fn check_removal(removal: Removal, (fallen, unused): (Vec<Arc<BindingMeta>>, Vec<String>)) -> Router {
    assert_eq!(removal.bindings, fallen);
    assert_eq!(removal.unused.iter().map(|exchange| exchange.name.clone()).collect::<Vec<_>>(), unused);
    removal.router
}

fn apply(router: &Router, model: &mut Model, step: &Step, serial: u64) -> Router {
    match step {
        Step::Queue(number) => {
            model.queues.insert(queue_name(*number));
            router.with_queue(&queue_name(*number))
        }
        Step::Exchange(number) => {
            model.exchanges.insert(exchange_name(*number), declared(*number));
            router.with_exchange(declared(*number)).expect("it has the kind that it had")
        }
        Step::Bind(binding) => {
            let bound = router.with_binding(binding, serial);
            assert_eq!(bound.is_ok(), model.takes(binding), "{bound:?}");
            if bound.is_ok() {
                model.bindings.entry(Arc::clone(binding)).or_insert(serial);
            }
            bound.unwrap_or_else(|_| router.clone())
        }
        Step::Unbind(_) if model.bindings.is_empty() => router.clone(),
        Step::Unbind(index) => {
            let binding = index.get(&model.bindings.keys().cloned().collect::<Vec<_>>()).clone();
            check_removal(router.without_binding(&binding), model.remove(|bound| *bound == *binding))
        }
        Step::UnbindAny(binding) => {
            check_removal(router.without_binding(binding), model.remove(|bound| *bound == **binding))
        }
        Step::DeleteQueue(number) => {
            let name = queue_name(*number);
            model.queues.remove(&name);
            check_removal(
                router.without_queue(&name),
                model.remove(|bound| bound.destination == queue(&name)),
            )
        }
        Step::DeleteExchange(number) => {
            let name = exchange_name(*number);
            model.exchanges.remove(&name);
            let to_it = Destination::Exchange(name.clone());
            let gone = |bound: &BindingMeta| bound.source == name || bound.destination == to_it;
            check_removal(router.without_exchange(&name), model.remove(gone))
        }
    }
}

/// Everything that can be seen of a router.
fn seen(router: &Router) -> Vec<String> {
    let mut seen = Vec::new();
    let mut route = Route::new();
    for exchange in router.exchanges() {
        seen.push(format!("{exchange:?} {}", router.binding_count(&exchange.name)));
        seen.extend(router.bindings_from(&exchange.name).iter().map(|binding| format!("{binding:?}")));
        let to_it = Destination::Exchange(exchange.name.clone());
        seen.extend(router.bindings_to(&to_it).iter().map(|binding| format!("{binding:?}")));
        for key in ["1", "2", "a.b", "a.c", "", "b", "c", "d", "e"] {
            let keys = [key.as_bytes()];
            let message = Routed { random: 11, ..Routed::new(&exchange.name, &keys) };
            router.route(&message, &mut route).expect("it is there");
            seen.push(format!("{} '{key}': {:?}", exchange.name, queues(&route)));
        }
    }
    for number in 0..QUEUES {
        let name = queue_name(number);
        seen.push(format!("{name}: {} {:?}", router.has_queue(&name), router.bindings_to(&queue(&name))));
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn step_by_step_is_the_same_as_at_once(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut router, mut model) = (Router::new(), Model::default());
        let mut held = Vec::new();
        for (step, serial) in steps.iter().zip(1..) {
            router = apply(&router, &mut model, step, serial);
            if serial % 10 == 0 {
                held.push((router.clone(), seen(&router)));
            }
        }
        prop_assert_eq!(seen(&router), seen(&model.built()));
        for (router, before) in held {
            prop_assert_eq!(seen(&router), before);
        }
    }
}

#[test]
fn ten_thousand_bindings_can_be_added_one_by_one_while_earlier_routers_are_held() {
    let mut router = Router::new().with_queue("q").with_exchange(exchange("t", "topic", vec![])).unwrap();
    let mut held = Vec::new();
    for number in 0..10_000 {
        let bound = binding("t", queue("q"), &format!("device.{number}.*"), vec![]);
        router = router.with_binding(&bound, number).unwrap();
        held.push(router.clone());
    }
    let mut route = Route::new();
    for (number, router) in held.iter().enumerate() {
        assert_eq!(router.binding_count("t"), number + 1);
        for (of, found) in [(number, true), (number + 1, false)] {
            let key = format!("device.{of}.up");
            router.route(&Routed::new("t", &[key.as_bytes()]), &mut route).unwrap();
            assert_eq!(!route.is_empty(), found);
        }
    }
}
