//! The table of one namespace, and how it changes.

use std::sync::Arc;

use weir_model::routing::{BindingMeta, Destination, ExchangeKind, ExchangeMeta};

use crate::exchange::Exchange;
use crate::limits::{BINDINGS_PER_EXCHANGE_MAX, EXCHANGE_HOPS_MAX, ROUTING_KEY_BYTES_MAX};
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;
use crate::table::targets::{Queue, Target};
use crate::table::{Bound, InvalidBinding};

/// The name of the default exchange, which is always there and never stored: it routes to the queue that
/// the routing key names.
const DEFAULT_EXCHANGE: &str = "";

/// Exchanges, bindings and queues of one namespace.
///
/// A router does not change; each change gives a new one, and publishers that hold an earlier one see
/// nothing of it. Cloning one is three counters. A change costs memory and time in the order of the
/// logarithm of the number of what it changes, whoever holds earlier ones: some kilobytes are copied
/// for a binding among a million as for one among ten. Removing an exchange or a queue costs that for
/// each binding that falls with it. The bindings of a consistent-hash exchange are laid out anew by the
/// first message after a change, in the order of their number.
///
/// Every binding's source and destination exist: one to a queue that is not there is refused, and goes
/// when its queue goes.
#[derive(Clone, Debug, Default)]
pub struct Router {
    queues: SharedMap<Arc<str>, Queue>,
    exchanges: SharedMap<Arc<str>, Arc<Exchange>>,
    /// For each destination the exchanges that have bindings to it.
    sources: SharedMap<Target, SharedMap<Arc<str>, ()>>,
    /// How many queues there have ever been.
    queues_ever: u64,
}

/// Why a router cannot be changed like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    /// The default exchange is neither declared nor bound.
    #[error("the default exchange is always there; it cannot be declared, deleted or bound")]
    DefaultExchange,
    /// There is an exchange of another kind with this name.
    #[error("the exchange '{name}' is {current} already and cannot become {wanted}")]
    OtherKind {
        /// Which.
        name: String,
        /// What it is.
        current: ExchangeKind,
        /// What it was to be.
        wanted: ExchangeKind,
    },
    /// There is no such exchange.
    #[error("there is no exchange '{0}'")]
    NoSuchExchange(String),
    /// There is no such queue.
    #[error("there is no queue '{0}'")]
    NoSuchQueue(String),
    /// The key is too long.
    #[error("the binding key is {0} bytes long; at most {max} are allowed", max = ROUTING_KEY_BYTES_MAX)]
    LongKey(usize),
    /// The exchange takes no more bindings.
    #[error("the exchange '{0}' has {max} bindings; it takes no more", max = BINDINGS_PER_EXCHANGE_MAX)]
    TooManyBindings(String),
    /// The kind of the exchange does not take such a binding.
    #[error("the exchange '{exchange}' does not take the binding: {why}")]
    InvalidBinding {
        /// Which exchange.
        exchange: String,
        /// Why not.
        why: InvalidBinding,
    },
}

/// A message was published to an exchange that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such exchange")]
pub struct NoSuchExchange;

/// A router without something, and what fell with it.
#[derive(Clone, Debug)]
pub struct Removal {
    /// What is left.
    pub router: Router,
    /// The bindings that are gone, in order.
    pub bindings: Vec<Arc<BindingMeta>>,
    /// Auto-delete exchanges, by name, that lost the last binding that leads from them. They are still
    /// there: they are to be removed next, from which more may follow.
    pub unused: Vec<Arc<ExchangeMeta>>,
}

impl Router {
    /// A router that knows nothing but the default exchange.
    pub fn new() -> Router {
        Router::default()
    }

    /// A router of all this at once. The number that comes with a binding is what
    /// [`Router::with_binding`] takes as its place.
    pub fn build<'q>(
        queues: impl IntoIterator<Item = &'q str>,
        exchanges: impl IntoIterator<Item = Arc<ExchangeMeta>>,
        bindings: impl IntoIterator<Item = (Arc<BindingMeta>, u64)>,
    ) -> Result<Router, RouterError> {
        let mut router = Router::new();
        queues.into_iter().for_each(|queue| router.add_queue(queue));
        exchanges.into_iter().try_for_each(|exchange| router.add_exchange(exchange))?;
        bindings.into_iter().try_for_each(|(binding, serial)| router.add_binding(&binding, serial))?;
        Ok(router)
    }

    /// With a queue of this name.
    pub fn with_queue(&self, name: &str) -> Router {
        let mut router = self.clone();
        router.add_queue(name);
        router
    }

    /// With an exchange, or with other settings of one that is there. Its kind cannot change.
    pub fn with_exchange(&self, meta: Arc<ExchangeMeta>) -> Result<Router, RouterError> {
        let mut router = self.clone();
        router.add_exchange(meta)?;
        Ok(router)
    }

    /// With a binding; the same if it is there already.
    ///
    /// `serial` says which of its exchange's bindings came before it. It must be the same on every node
    /// and for ever, the number of the change that made the binding for instance: a consistent-hash
    /// exchange gives out its buckets in that order. Bindings of the same serial are in the order of
    /// their content.
    pub fn with_binding(&self, binding: &Arc<BindingMeta>, serial: u64) -> Result<Router, RouterError> {
        let mut router = self.clone();
        router.add_binding(binding, serial)?;
        Ok(router)
    }

    /// Without a queue and the bindings to it; the same if it is not there.
    pub fn without_queue(&self, name: &str) -> Removal {
        let mut removal = Removal::of(self);
        if let Some(queue) = removal.router.queues.remove(name) {
            removal.drop_bindings_to(&Target::Queue(queue));
        }
        removal.sorted()
    }

    /// Without an exchange and the bindings from it and to it; the same if it is not there.
    pub fn without_exchange(&self, name: &str) -> Removal {
        let mut removal = Removal::of(self);
        if let Some(exchange) = removal.router.exchanges.remove(name) {
            for target in exchange.targets() {
                removal.router.forget_source(target, name);
            }
            removal.bindings = exchange.bindings();
            removal.drop_bindings_to(&Target::Exchange(Arc::clone(&exchange.name)));
        }
        removal.sorted()
    }

    /// Without a binding; the same if it is not there.
    pub fn without_binding(&self, binding: &BindingMeta) -> Removal {
        let mut removal = Removal::of(self);
        let source = self.exchanges.get(binding.source.as_str());
        if let (Some(source), Ok(target)) = (source, self.target(&binding.destination))
            && source.contains(binding, &target)
        {
            removal.drop_bindings(&source.name, &target, vec![Arc::new(binding.clone())]);
        }
        removal
    }

    /// Whether there is a queue of this name.
    pub fn has_queue(&self, name: &str) -> bool {
        self.queues.contains(name)
    }

    /// The exchange of this name. Whether clients may publish to it, which an internal one forbids, is
    /// for the caller to check.
    pub fn exchange(&self, name: &str) -> Option<&Arc<ExchangeMeta>> {
        self.exchanges.get(name).map(|exchange| &exchange.meta)
    }

    /// All exchanges by name; the default one is not among them.
    pub fn exchanges(&self) -> Vec<Arc<ExchangeMeta>> {
        let mut all = Vec::with_capacity(self.exchanges.len());
        self.exchanges.for_each(|_, exchange| all.push(Arc::clone(&exchange.meta)));
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The bindings that lead from an exchange, in order.
    pub fn bindings_from(&self, exchange: &str) -> Vec<Arc<BindingMeta>> {
        let mut bindings = self.exchanges.get(exchange).map(|found| found.bindings()).unwrap_or_default();
        bindings.sort_unstable();
        bindings
    }

    /// The bindings that lead to a queue or an exchange, in order.
    pub fn bindings_to(&self, destination: &Destination) -> Vec<Arc<BindingMeta>> {
        let Ok(target) = self.target(destination) else { return Vec::new() };
        let names = self.sources.get(&target).map(SharedMap::keys).unwrap_or_default();
        let sources = names.into_iter().filter_map(|name| self.exchanges.get(&**name));
        let mut bindings: Vec<_> = sources.flat_map(|source| source.bindings_to(&target)).collect();
        bindings.sort_unstable();
        bindings
    }

    /// How many bindings lead from an exchange.
    pub fn binding_count(&self, exchange: &str) -> usize {
        self.exchanges.get(exchange).map_or(0, |found| found.binding_count())
    }

    /// Where a message goes. What `route` said of another message is forgotten.
    ///
    /// Exchanges pass messages on along their bindings, and where they route nowhere to their alternate
    /// exchange if there is one. No exchange is visited twice, so that loops end; a queue that is reached
    /// twice gets the message once.
    pub fn route(&self, message: &Routed<'_>, route: &mut Route) -> Result<(), NoSuchExchange> {
        route.begin(message.random);
        if message.exchange == DEFAULT_EXCHANGE {
            self.route_by_default(message, route);
        } else {
            let exchange = self.exchanges.get(message.exchange).ok_or(NoSuchExchange)?;
            exchange.route(message, route);
            route.came_by(&exchange.name);
            self.route_on(message, route);
        }
        route.finish();
        Ok(())
    }

    /// Follows the message from exchange to exchange, those equally far away together.
    fn route_on(&self, message: &Routed<'_>, route: &mut Route) {
        for _ in 0..EXCHANGE_HOPS_MAX {
            let waiting = route.take_waiting();
            if waiting.is_empty() {
                return;
            }
            for name in waiting {
                if *name == *DEFAULT_EXCHANGE {
                    self.route_by_default(message, route);
                } else if let Some(exchange) = self.exchanges.get(&*name) {
                    exchange.route(message, route);
                }
            }
        }
        if !route.take_waiting().is_empty() {
            route.cut_short();
        }
    }

    fn route_by_default(&self, message: &Routed<'_>, route: &mut Route) {
        let names = message.keys.iter().filter_map(|key| std::str::from_utf8(key).ok());
        for queue in names.filter_map(|name| self.queues.get(name)) {
            route.add_queue(queue);
        }
    }

    fn target(&self, destination: &Destination) -> Result<Target, RouterError> {
        match destination {
            Destination::Queue(name) => match self.queues.get(name.as_str()) {
                Some(queue) => Ok(Target::Queue(queue.clone())),
                None => Err(RouterError::NoSuchQueue(name.clone())),
            },
            Destination::Exchange(name) if name == DEFAULT_EXCHANGE => Err(RouterError::DefaultExchange),
            Destination::Exchange(name) => match self.exchanges.get(name.as_str()) {
                Some(exchange) => Ok(Target::Exchange(Arc::clone(&exchange.name))),
                None => Err(RouterError::NoSuchExchange(name.clone())),
            },
        }
    }

    fn add_queue(&mut self, name: &str) {
        if !self.queues.contains(name) {
            let name: Arc<str> = Arc::from(name);
            let queue = Queue { order: self.queues_ever, name: Arc::clone(&name) };
            self.queues.insert(name, queue);
            self.queues_ever += 1;
        }
    }

    fn add_exchange(&mut self, meta: Arc<ExchangeMeta>) -> Result<(), RouterError> {
        if meta.name == DEFAULT_EXCHANGE {
            return Err(RouterError::DefaultExchange);
        }
        match self.exchanges.get_mut(meta.name.as_str()) {
            None => {
                let exchange = Exchange::new(meta);
                self.exchanges.insert(Arc::clone(&exchange.name), Arc::new(exchange));
            }
            Some(exchange) if exchange.meta.kind == meta.kind => Arc::make_mut(exchange).update(meta),
            Some(exchange) => {
                return Err(RouterError::OtherKind {
                    name: meta.name.clone(),
                    current: exchange.meta.kind,
                    wanted: meta.kind,
                });
            }
        }
        Ok(())
    }

    fn add_binding(&mut self, binding: &Arc<BindingMeta>, serial: u64) -> Result<(), RouterError> {
        let source = binding.source.as_str();
        if source == DEFAULT_EXCHANGE {
            return Err(RouterError::DefaultExchange);
        }
        if binding.key.len() > ROUTING_KEY_BYTES_MAX {
            return Err(RouterError::LongKey(binding.key.len()));
        }
        let target = self.target(&binding.destination)?;
        let Some(exchange) = self.exchanges.get_mut(source) else {
            return Err(RouterError::NoSuchExchange(source.to_owned()));
        };
        if exchange.contains(binding, &target) {
            return Ok(());
        }
        if exchange.binding_count() >= BINDINGS_PER_EXCHANGE_MAX {
            return Err(RouterError::TooManyBindings(source.to_owned()));
        }
        Arc::make_mut(exchange)
            .add(&Bound { binding, target: &target, serial })
            .map_err(|why| RouterError::InvalidBinding { exchange: source.to_owned(), why })?;
        let name = Arc::clone(&exchange.name);
        self.sources.change(target, |names| {
            names.insert(name, ());
        });
        Ok(())
    }

    /// An exchange has no binding to this target any more.
    fn forget_source(&mut self, target: &Target, exchange: &str) {
        let Some(names) = self.sources.get_mut(target) else { return };
        names.remove(exchange);
        if names.is_empty() {
            self.sources.remove(target);
        }
    }
}

impl Removal {
    /// Nothing removed yet.
    fn of(router: &Router) -> Removal {
        Removal { router: router.clone(), bindings: Vec::new(), unused: Vec::new() }
    }

    /// Removes all bindings to a target.
    fn drop_bindings_to(&mut self, target: &Target) {
        let Some(names) = self.router.sources.get(target).cloned() else { return };
        for name in names.keys() {
            let bound = self.router.exchanges.get(&**name).map(|source| source.bindings_to(target));
            self.drop_bindings(name, target, bound.unwrap_or_default());
        }
    }

    /// Removes bindings that lead from one exchange to one target.
    fn drop_bindings(&mut self, source: &str, target: &Target, bindings: Vec<Arc<BindingMeta>>) {
        let Some(exchange) = self.router.exchanges.get_mut(source) else { return };
        let exchange = Arc::make_mut(exchange);
        bindings.iter().for_each(|binding| exchange.remove(binding, target));
        if exchange.is_unused() {
            self.unused.push(Arc::clone(&exchange.meta));
        }
        if !exchange.leads_to(target) {
            self.router.forget_source(target, source);
        }
        self.bindings.extend(bindings);
    }

    fn sorted(mut self) -> Removal {
        self.bindings.sort_unstable();
        self.unused.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self
    }
}
