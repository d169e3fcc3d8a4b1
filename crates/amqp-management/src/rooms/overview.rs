//! `/api/overview`.

use serde_json::{Value, json};

use super::nodes::{CLUSTER_NAME, RABBITMQ_VERSION, contexts, exchange_types, listeners, this_node};
use super::{put, queues};
use crate::ask::Ask;
use crate::failure::Result;
use crate::front::Answer;
use crate::listing;

pub(super) async fn describe(ask: &Ask) -> Result<Answer> {
    let namespaces = ask.namespaces()?;
    let mut exchanges = 0;
    for namespace in &namespaces {
        // The default exchange is not among them, and counts.
        exchanges += ask.broker.router(namespace)?.exchanges().len() + 1;
    }
    let infos = queues::infos(ask, &namespaces)?;
    let mut overview = json!({
        "product_name": "Weir",
        "product_version": env!("CARGO_PKG_VERSION"),
        "rabbitmq_version": RABBITMQ_VERSION,
        "management_version": RABBITMQ_VERSION,
        "cluster_name": CLUSTER_NAME,
        "rates_mode": "none",
        "disable_stats": true,
        "enable_queue_totals": true,
        "default_queue_type": "classic",
        "exchange_types": exchange_types(),
    });
    let totals = queues::totals(ask, &infos).await;
    let mut objects = json!({ "exchanges": exchanges, "queues": infos.len() });
    if ask.user.may_monitor() {
        let sessions = ask.broker.sessions();
        let channels: u64 = sessions.iter().map(|session| u64::from(session.counters().channels())).sum();
        put(&mut objects, "connections", Some(sessions.len()));
        put(&mut objects, "channels", Some(channels));
        put(&mut objects, "consumers", totals.map(|totals| totals.consumers));
        put(&mut overview, "node", Some(this_node(&ask.broker)));
        put(&mut overview, "listeners", Some(listeners(&ask.broker)));
        put(&mut overview, "contexts", Some(contexts(&ask.broker)));
    }
    put(&mut overview, "object_totals", Some(objects));
    let totals: Option<Value> = totals.as_ref().map(queues::counts);
    put(&mut overview, "queue_totals", totals);
    Ok(Answer::Json(listing::with_columns(overview, &ask.query)))
}
