//! `/api/definitions`: everything that was declared, in one document, and the same document read again.
//!
//! What Weir does not have, such as parameters, may stand in a document only if there is nothing in it: whoever imports
//! a definition that has no effect would otherwise believe that it has one. Everything is checked before anything is
//! declared. What is there already stays as it is, as in RabbitMQ.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};
use weir_broker::Broker;
use weir_broker::topology::{ExchangeDeclaration, QueueDeclaration, check_policy, check_queue_name};
use weir_model::access::{AccessChange, NamespaceMeta};
use weir_model::policy::PolicyMeta;
use weir_model::queue::{QueueMeta, split_name};
use weir_model::routing::{BindingMeta, Destination, ExchangeMeta, ROUTING_KEY_BYTES_MAX, check_arguments};

use super::nodes::{CLUSTER_NAME, RABBITMQ_VERSION};
use super::{bindings, exchanges, namespaces, policies, queues, users};
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::resource::Named;

/// Queues, exchanges and bindings of a document.
const ITEMS_MAX: usize = 200_000;

/// Declarations that are under way at the same time.
const DECLARED_AT_ONCE: usize = 256;

/// What names that only the broker gives begin with.
const RESERVED: &str = "amq.";

/// Sections of what Weir does not have.
const NOT_SERVED: [&str; 1] = ["parameters"];

/// Global parameters in which a cluster notes something about itself: another has its own.
const OF_THE_CLUSTER: [&str; 3] = ["cluster_name", "internal_cluster_id", "cluster_tags"];

pub(super) fn export(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    ask.user.need_administrator()?;
    let namespaces = match namespace {
        None => ask.broker.namespaces()?.into_iter().collect(),
        Some(_) => ask.one_or_all(namespace)?,
    };
    let mut document = json!({
        "rabbit_version": RABBITMQ_VERSION,
        "rabbitmq_version": RABBITMQ_VERSION,
        "product_name": "Weir",
        "product_version": env!("CARGO_PKG_VERSION"),
        "parameters": [],
        "policies": policies::all(ask, false, &namespaces)?,
        "exchanges": exported_exchanges(ask, &namespaces)?,
        "queues": exported_queues(ask, &namespaces)?,
        "bindings": exported_bindings(ask, &namespaces)?,
    });
    let items =
        ["exchanges", "queues", "bindings"].map(|section| document[section].as_array().map_or(0, Vec::len));
    if items.iter().sum::<usize>() > ITEMS_MAX {
        let reason = format!(
            "a document has at most {ITEMS_MAX} exchanges, queues and bindings; export virtual hosts"
        );
        return Err(Failure::new(StatusCode::BAD_REQUEST, "too_many_items", reason));
    }
    match namespace {
        None => {
            let records = ask.broker.access_records()?;
            let users: Vec<Value> = records.users.iter().map(|user| users::shown(user)).collect();
            let vhosts: Vec<Value> =
                records.namespaces.iter().map(|namespace| exported_namespace(namespace)).collect();
            put(&mut document, "rabbitmq_definition_format", json!("cluster"));
            put(&mut document, "original_cluster_name", json!(CLUSTER_NAME));
            put(&mut document, "users", json!(users));
            put(&mut document, "vhosts", json!(vhosts));
            put(&mut document, "permissions", json!(users::permissions(&ask.broker)?));
            put(&mut document, "topic_permissions", json!(users::topic_permissions(&ask.broker)?));
            put(&mut document, "global_parameters", json!([]));
        }
        Some(namespace) => {
            put(&mut document, "rabbitmq_definition_format", json!("single_virtual_host"));
            put(&mut document, "original_vhost_name", json!(namespace));
            for section in ["exchanges", "queues", "bindings", "policies"] {
                for item in document[section].as_array_mut().into_iter().flatten() {
                    if let Value::Object(item) = item {
                        item.remove("vhost");
                    }
                }
            }
        }
    }
    let is_token = |name: &&str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    Ok(match ask.query.get("download").filter(is_token) {
        Some(name) => Answer::File(document, name.to_owned()),
        None => Answer::Json(document),
    })
}

fn exported_namespace(namespace: &NamespaceMeta) -> Value {
    let NamespaceMeta { name, description, tags, default_queue_type, .. } = namespace;
    let mut exported = json!({ "name": name, "description": description, "tags": tags });
    super::put(&mut exported, "default_queue_type", default_queue_type.clone());
    exported
}

fn put(document: &mut Value, name: &str, value: Value) {
    super::put(document, name, Some(value));
}

fn exported_exchanges(ask: &Ask, namespaces: &[String]) -> Result<Vec<Value>> {
    let mut exported = Vec::new();
    for namespace in namespaces {
        let all = ask.broker.router(namespace)?.exchanges();
        let declared = all.iter().filter(|exchange| !exchange.name.starts_with(RESERVED));
        exported.extend(declared.map(|exchange| exchanges::shown(exchange)));
    }
    Ok(exported)
}

fn exported_queues(ask: &Ask, namespaces: &[String]) -> Result<Vec<Value>> {
    let infos = queues::infos(ask, namespaces)?;
    let kept = infos.iter().filter(|info| !info.meta.exclusive);
    let exported = kept.map(|info| {
        let (namespace, name) = split_name(info.topic.name());
        json!({
            "name": name,
            "vhost": namespace,
            "type": info.meta.kind.name(),
            "durable": info.meta.durable,
            "auto_delete": info.meta.auto_delete,
            "arguments": json::from_arguments(&info.meta.arguments),
        })
    });
    Ok(exported.collect())
}

fn exported_bindings(ask: &Ask, namespaces: &[String]) -> Result<Vec<Value>> {
    let mut exported = Vec::new();
    for namespace in namespaces {
        let router = ask.broker.router(namespace)?;
        for binding in bindings::explicit(ask, namespace)? {
            // Those of queues that are not exported lead nowhere elsewhere.
            let leads_to_kept = match &binding.destination {
                Destination::Exchange(name) => router.exchange(name).is_some(),
                Destination::Queue(name) => {
                    // A topic that is no queue has no place in the document.
                    let found = ask.broker.find_queue(namespace, name).ok().flatten();
                    found.is_some_and(|info| !info.meta.exclusive)
                }
            };
            if leads_to_kept {
                exported.push(bindings::definition(&binding));
            }
        }
    }
    Ok(exported)
}

/// What a document declares, checked.
#[derive(Debug, Default)]
struct Import {
    access: Vec<AccessChange>,
    exchanges: Vec<ExchangeMeta>,
    queues: Vec<(Named, QueueMeta)>,
    bindings: Vec<BindingMeta>,
    policies: Vec<PolicyMeta>,
}

pub(super) async fn import(ask: Ask, namespace: Option<String>) -> Result<Answer> {
    ask.user.need_administrator()?;
    if let Some(namespace) = &namespace {
        ask.need_entry(namespace)?;
    }
    let document = ask.object().map_err(|_| Failure::bad_request("failed_to_parse_json"))?;
    refuse_not_served(&document)?;
    let access = match namespace {
        None => read_access(&ask, &document).await?,
        Some(_) => Vec::new(),
    };
    let mut import = read(&ask, &document, namespace.as_deref())?;
    check_bindings(&ask, &import)?;
    import.access = access;
    // What was begun is finished, whether somebody waits for it or not.
    match tokio::spawn(declare(Arc::clone(&ask.broker), import)).await {
        Ok(declared) => declared.map(|()| Answer::Done),
        Err(_) => {
            let reason = "the import was not finished";
            Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason))
        }
    }
}

/// The items of a section; none if it is not there.
fn section<'d>(document: &'d Map<String, Value>, name: &str) -> Result<Vec<&'d Map<String, Value>>> {
    let wrong = || Failure::bad_request(format!("'{name}' must be an array of objects"));
    match document.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(|item| item.as_object().ok_or_else(wrong)).collect(),
        Some(_) => Err(wrong()),
    }
}

fn refuse_not_served(document: &Map<String, Value>) -> Result<()> {
    for name in NOT_SERVED {
        if !section(document, name)?.is_empty() {
            let reason = format!("'{name}' cannot be imported: Weir has none; take them out of the document");
            return Err(Failure::not_served(reason));
        }
    }
    for parameter in section(document, "global_parameters")? {
        let name = json::need_text(parameter, "name")?;
        if !OF_THE_CLUSTER.contains(&name) {
            let reason =
                format!("the global parameter '{name}' cannot be imported; take it out of the document");
            return Err(Failure::not_served(reason));
        }
    }
    Ok(())
}

/// Users, namespaces and permissions of a document, in the order in which they are stored.
async fn read_access(ask: &Ask, document: &Map<String, Value>) -> Result<Vec<AccessChange>> {
    let mut changes = Vec::new();
    for item in section(document, "users")? {
        let name = json::need_text(item, "name")?;
        let user = users::read(&ask.broker, item, name).await.map_err(|error| named(error, "user", name))?;
        changes.push(AccessChange::PutUser { user, new: false });
    }
    for item in section(document, "vhosts")? {
        let name = json::need_text(item, "name")?;
        let namespace = namespaces::read(&item_metadata(item), name)?;
        changes.push(AccessChange::PutNamespace { namespace, new: false });
    }
    for item in section(document, "permissions")? {
        let (namespace, user) = (json::need_text(item, "vhost")?, json::need_text(item, "user")?);
        let permission = users::read_permission(item, namespace, user)?;
        changes.push(AccessChange::PutPermission { permission });
    }
    for item in section(document, "topic_permissions")? {
        let (namespace, user) = (json::need_text(item, "vhost")?, json::need_text(item, "user")?);
        let permission = users::read_topic_permission(item, namespace, user)?;
        changes.push(AccessChange::PutTopicPermission { permission });
    }
    if changes.len() > ITEMS_MAX {
        let reason = format!("a document has at most {ITEMS_MAX} users, virtual hosts and permissions");
        return Err(Failure::bad_request(reason));
    }
    Ok(changes)
}

/// What a definition says of a virtual host: RabbitMQ's newer versions say it in an object of its own.
fn item_metadata(item: &Map<String, Value>) -> Map<String, Value> {
    let mut said = item.clone();
    if let Some(Value::Object(metadata)) = item.get("metadata") {
        said.extend(metadata.clone());
    }
    said
}

fn read(ask: &Ask, document: &Map<String, Value>, namespace: Option<&str>) -> Result<Import> {
    let (exchanges, queues) = (section(document, "exchanges")?, section(document, "queues")?);
    let bindings = section(document, "bindings")?;
    if exchanges.len() + queues.len() + bindings.len() > ITEMS_MAX {
        let reason = format!("a document has at most {ITEMS_MAX} exchanges, queues and bindings");
        return Err(Failure::bad_request(reason));
    }
    let mut comes = BTreeSet::new();
    for item in section(document, "vhosts")? {
        comes.insert(json::need_text(item, "name")?);
    }
    let place = |item: &Map<String, Value>| -> Result<String> {
        // A document of one virtual host goes into the one that is named.
        let of = match namespace {
            Some(namespace) => namespace.to_owned(),
            None => json::need_text(item, "vhost")?.to_owned(),
        };
        match comes.contains(of.as_str()) {
            true => Ok(of),
            false => ask.need_entry(&of).map(|()| of),
        }
    };
    let mut import = Import::default();
    for item in exchanges {
        let (namespace, name) = (place(item)?, json::need_text(item, "name")?);
        // They are there, and nobody declares them.
        if name.is_empty() || name.starts_with(RESERVED) {
            continue;
        }
        let declaration = ExchangeDeclaration {
            kind: json::need_text(item, "type")?.to_owned(),
            durable: flag_or(item, "durable", true)?,
            auto_delete: json::flag(item, "auto_delete")?,
            internal: json::flag(item, "internal")?,
            arguments: json::arguments(item, "arguments")?,
        };
        let meta =
            declaration.meta(&namespace, name).map_err(|error| named(error.into(), "exchange", name))?;
        import.exchanges.push(meta);
    }
    for item in queues {
        let (namespace, name) = (place(item)?, json::need_text(item, "name")?.to_owned());
        if name.starts_with(RESERVED) {
            continue;
        }
        check_queue_name(&name)?;
        let declaration = QueueDeclaration {
            durable: flag_or(item, "durable", true)?,
            auto_delete: json::flag(item, "auto_delete")?,
            exclusive: false,
            arguments: json::arguments(item, "arguments")?,
        };
        let declaration = queues::with_kind(declaration, json::some_text(item, "type")?);
        let meta =
            declaration.meta(&namespace, &name).map_err(|error| named(error.into(), "queue", &name))?;
        import.queues.push((Named { namespace, name }, meta));
    }
    for item in bindings {
        import.bindings.push(binding(item, place(item)?)?);
    }
    for item in section(document, "policies")? {
        let named = Named { namespace: place(item)?, name: json::need_text(item, "name")?.to_owned() };
        let policy = policies::read(item, false, &named)?;
        check_policy(&policy).map_err(|error| self::named(error.into(), "policy", &named.name))?;
        import.policies.push(policy);
    }
    Ok(import)
}

fn binding(item: &Map<String, Value>, namespace: String) -> Result<BindingMeta> {
    let destination = json::need_text(item, "destination")?.to_owned();
    let destination = match json::need_text(item, "destination_type")? {
        "queue" => Destination::Queue(destination),
        "exchange" => Destination::Exchange(destination),
        other => return Err(Failure::bad_request(format!("there is no destination_type '{other}'"))),
    };
    let source = json::need_text(item, "source")?.to_owned();
    exchanges::refuse_default(&source)?;
    let key = json::some_text(item, "routing_key")?.unwrap_or_default().to_owned();
    if key.len() > ROUTING_KEY_BYTES_MAX {
        return Err(Failure::bad_request(format!("a routing key has at most {ROUTING_KEY_BYTES_MAX} bytes")));
    }
    let arguments = json::arguments(item, "arguments")?;
    check_arguments(&arguments).map_err(|error| Failure::bad_request(error.to_string()))?;
    Ok(BindingMeta::new(namespace, source, destination, Bytes::from(key), arguments))
}

fn flag_or(item: &Map<String, Value>, name: &str, otherwise: bool) -> Result<bool> {
    if item.contains_key(name) { json::flag(item, name) } else { Ok(otherwise) }
}

/// The failure, and of what.
fn named(failure: Failure, what: &str, name: &str) -> Failure {
    failure.of(&format!("{what} '{name}'"))
}

/// Refuses bindings whose ends are neither there nor in the document.
fn check_bindings(ask: &Ask, import: &Import) -> Result<()> {
    let exchanges: BTreeSet<(&str, &str)> =
        import.exchanges.iter().map(|one| (one.namespace.as_str(), one.name.as_str())).collect();
    let queues: BTreeSet<(&str, &str)> =
        import.queues.iter().map(|(one, _)| (one.namespace.as_str(), one.name.as_str())).collect();
    for binding in &import.bindings {
        let namespace = binding.namespace.as_str();
        let router = ask.broker.router(namespace)?;
        let exchange = |name: &str| router.exchange(name).is_some() || exchanges.contains(&(namespace, name));
        let missing = |what: &str, name: &str| {
            Err(Failure::not_found(format!("no {what} '{name}' in vhost '{namespace}', for a binding")))
        };
        if !exchange(&binding.source) {
            return missing("exchange", &binding.source);
        }
        match &binding.destination {
            Destination::Exchange(name) if !exchange(name) => return missing("exchange", name),
            Destination::Queue(name)
                if !queues.contains(&(namespace, name.as_str())) && !router.has_queue(name) =>
            {
                return missing("queue", name);
            }
            _ => {}
        }
    }
    Ok(())
}

async fn declare(broker: Arc<Broker>, import: Import) -> Result<()> {
    let Import { access, exchanges, queues, bindings, policies } = import;
    for change in access {
        broker.change_access(change).await?;
    }
    // First: what is declared goes by them from the beginning.
    for policy in policies {
        let name = policy.key.name.clone();
        broker.put_policy(policy).await.map_err(|error| named(error.into(), "policy", &name))?;
    }
    let exchanges = stream::iter(exchanges.into_iter().map(|meta| {
        let broker = Arc::clone(&broker);
        async move {
            let name = meta.name.clone();
            broker
                .declare_exchange(meta)
                .await
                .map_err(|error| named(error.into(), "exchange", &name))
                .map(drop)
        }
    }));
    exchanges.buffer_unordered(DECLARED_AT_ONCE).try_collect::<()>().await?;
    let queues = stream::iter(queues.into_iter().map(|(place, meta)| {
        let broker = Arc::clone(&broker);
        async move {
            let declared = async {
                let (info, _) = broker.create_queue(&place.namespace, &place.name, meta).await?;
                broker.wake_queue(&info).await
            };
            declared.await.map_err(|error| named(error.into(), "queue", &place.name))
        }
    }));
    queues.buffer_unordered(DECLARED_AT_ONCE).try_collect::<()>().await?;
    // In their order, which is the order of an exchange's bindings.
    let bindings = stream::iter(bindings.into_iter().map(|binding| {
        let broker = Arc::clone(&broker);
        async move {
            let source = binding.source.clone();
            broker.bind(binding).await.map_err(|error| named(error.into(), "a binding of exchange", &source))
        }
    }));
    bindings.buffered(DECLARED_AT_ONCE).try_collect::<()>().await
}
