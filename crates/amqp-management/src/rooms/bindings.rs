//! `/api/bindings`, and the bindings of an exchange or a queue.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_model::queue::split_name;
use weir_model::routing::{BindingMeta, Destination, ROUTING_KEY_BYTES_MAX, check_arguments};

use super::{exchanges, queues};
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json::{self, quote_plus};
use crate::listing;
use crate::properties_key::{is_named, properties_key};
use crate::resource::{Ends, Named};

/// The order of bindings in a list.
const COLUMNS: [&str; 6] =
    ["vhost", "source", "destination_type", "destination", "routing_key", "properties_key"];

pub(super) fn list(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    let namespaces = ask.one_or_all(namespace)?;
    let mut all = Vec::new();
    for namespace in &namespaces {
        all.extend(explicit(ask, namespace)?.iter().map(|binding| shown(binding)));
    }
    for info in queues::infos(ask, &namespaces)? {
        let (namespace, name) = split_name(info.topic.name());
        all.push(shown(&by_default(namespace, name)));
    }
    answer(ask, all)
}

/// The bindings that were made, of a namespace.
pub(super) fn explicit(ask: &Ask, namespace: &str) -> Result<Vec<Arc<BindingMeta>>> {
    let router = ask.broker.router(namespace)?;
    Ok(router.exchanges().iter().flat_map(|exchange| router.bindings_from(&exchange.name)).collect())
}

/// The binding that every queue has to the default exchange. It is stored nowhere.
fn by_default(namespace: &str, queue: &str) -> BindingMeta {
    BindingMeta::new(
        namespace.to_owned(),
        String::new(),
        Destination::Queue(queue.to_owned()),
        Bytes::copy_from_slice(queue.as_bytes()),
        Vec::new(),
    )
}

fn answer(ask: &Ask, bindings: Vec<Value>) -> Result<Answer> {
    Ok(Answer::Json(listing::list(bindings, &ask.query, &COLUMNS)?))
}

fn shown(binding: &BindingMeta) -> Value {
    let mut shown = definition(binding);
    let key = properties_key(&binding.key, &binding.arguments);
    super::put(&mut shown, "properties_key", Some(key));
    shown
}

/// A binding as definitions have it.
pub(super) fn definition(binding: &BindingMeta) -> Value {
    json!({
        "source": binding.source,
        "vhost": binding.namespace,
        "destination": binding.destination.name(),
        "destination_type": match binding.destination {
            Destination::Queue(_) => "queue",
            Destination::Exchange(_) => "exchange",
        },
        "routing_key": json::text(&binding.key),
        "arguments": json::from_arguments(&binding.arguments),
    })
}

pub(super) fn list_from(ask: &Ask, named: &Named) -> Result<Answer> {
    exchanges::need(ask, named)?;
    let bindings = if named.name.is_empty() {
        let infos = queues::infos(ask, std::slice::from_ref(&named.namespace))?;
        infos
            .iter()
            .map(|info| shown(&by_default(&named.namespace, split_name(info.topic.name()).1)))
            .collect()
    } else {
        let bindings = ask.broker.router(&named.namespace)?.bindings_from(&named.name);
        bindings.iter().map(|binding| shown(binding)).collect()
    };
    answer(ask, bindings)
}

pub(super) fn list_to_exchange(ask: &Ask, named: &Named) -> Result<Answer> {
    exchanges::need(ask, named)?;
    let to = Destination::Exchange(named.name.clone());
    let bindings = ask.broker.router(&named.namespace)?.bindings_to(&to);
    answer(ask, bindings.iter().map(|binding| shown(binding)).collect())
}

pub(super) fn list_to_queue(ask: &Ask, named: &Named) -> Result<Answer> {
    queues::find(ask, named)?;
    let to = Destination::Queue(named.name.clone());
    let bindings = ask.broker.router(&named.namespace)?.bindings_to(&to);
    let mut all = vec![shown(&by_default(&named.namespace, &named.name))];
    all.extend(bindings.iter().map(|binding| shown(binding)));
    answer(ask, all)
}

/// All bindings between two ends.
fn between(ask: &Ask, ends: &Ends) -> Result<Vec<Arc<BindingMeta>>> {
    let Ends { namespace, source, destination } = ends;
    exchanges::need(ask, &Named { namespace: namespace.clone(), name: source.clone() })?;
    let to = Named { namespace: namespace.clone(), name: destination.name().to_owned() };
    match destination {
        Destination::Queue(_) => drop(queues::find(ask, &to)?),
        Destination::Exchange(_) => drop(exchanges::need(ask, &to)?),
    }
    if source.is_empty() {
        let queue = matches!(destination, Destination::Queue(_));
        return Ok(queue.then(|| Arc::new(by_default(namespace, destination.name()))).into_iter().collect());
    }
    let mut bindings = ask.broker.router(namespace)?.bindings_to(destination);
    bindings.retain(|binding| binding.source == *source);
    Ok(bindings)
}

pub(super) fn list_between(ask: &Ask, ends: &Ends) -> Result<Answer> {
    answer(ask, between(ask, ends)?.iter().map(|binding| shown(binding)).collect())
}

fn find(ask: &Ask, ends: &Ends, key: &str) -> Result<Arc<BindingMeta>> {
    let found = between(ask, ends)?.into_iter().find(|binding| is_named(binding, key));
    found.ok_or_else(Failure::nothing_there)
}

pub(super) fn describe(ask: &Ask, ends: &Ends, key: &str) -> Result<Answer> {
    let binding = find(ask, ends, key)?;
    Ok(Answer::Json(listing::with_columns(shown(&binding), &ask.query)))
}

pub(super) async fn create(ask: &Ask, ends: &Ends) -> Result<Answer> {
    let Ends { namespace, source, destination } = ends;
    ask.need_entry(namespace)?;
    let body = ask.object()?;
    let key = json::some_text(&body, "routing_key")?.unwrap_or_default().to_owned();
    let arguments = json::arguments(&body, "arguments")?;
    let binding =
        BindingMeta::new(namespace.clone(), source.clone(), destination.clone(), Bytes::from(key), arguments);
    check(ask, &binding)?;
    let name = properties_key(&binding.key, &binding.arguments);
    ask.broker.bind(binding).await?;
    // From the path that was asked.
    let place = format!("{}/{}", quote_plus(destination.name().as_bytes()), quote_plus(name.as_bytes()));
    Ok(Answer::Created(Some(place)))
}

/// Refuses a binding that cannot be made: RabbitMQ's order of complaints, and its words.
pub(super) fn check(ask: &Ask, binding: &BindingMeta) -> Result<()> {
    let BindingMeta { namespace, source, destination, key, arguments } = binding;
    exchanges::refuse_default(source)?;
    let router = ask.broker.router(namespace)?;
    let no_exchange = |name: &str| Failure::not_found(format!("no exchange '{name}' in vhost '{namespace}'"));
    match destination {
        Destination::Exchange(name) => {
            exchanges::refuse_default(name)?;
            if router.exchange(name).is_none() {
                return Err(no_exchange(name));
            }
        }
        Destination::Queue(name) => match ask.broker.find_queue(namespace, name)? {
            None => return Err(Failure::not_found(format!("no queue '{name}' in vhost '{namespace}'"))),
            Some(info) if info.meta.exclusive => {
                return Err(queues::locked(&Named { namespace: namespace.clone(), name: name.clone() }));
            }
            Some(_) => {}
        },
    }
    if router.exchange(source).is_none() {
        return Err(no_exchange(source));
    }
    if key.len() > ROUTING_KEY_BYTES_MAX {
        return Err(Failure::bad_request(format!("a routing key has at most {ROUTING_KEY_BYTES_MAX} bytes")));
    }
    check_arguments(arguments).map_err(|error| Failure::bad_request(error.to_string()))
}

pub(super) async fn delete(ask: &Ask, ends: &Ends, key: &str) -> Result<Answer> {
    ask.need_entry(&ends.namespace).map_err(|_| Failure::nothing_there())?;
    let binding = find(ask, ends, key)?;
    exchanges::refuse_default(&ends.source)?;
    ask.broker.unbind(BindingMeta::clone(&binding)).await?;
    Ok(Answer::Done)
}
