//! How much of the management API a user may use, by tags.

/// The roles of RabbitMQ's management API. `policymaker` and `monitoring` do not include each other;
/// both include `management`, and `administrator` includes all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Management {
    /// May use it: what AMQP would allow too, and listings of the own connections and channels.
    pub may_use: bool,
    /// May change policies and parameters of namespaces that may be entered.
    pub policies: bool,
    /// May see all namespaces, everybody's connections and channels, and the nodes.
    pub monitoring: bool,
    /// May change users, namespaces and permissions, and close everybody's connections.
    pub administration: bool,
}

impl Management {
    /// What these tags give.
    pub fn of(tags: &[String]) -> Management {
        let tagged = |tag: &str| tags.iter().any(|other| other == tag);
        let administration = tagged("administrator");
        let monitoring = administration || tagged("monitoring");
        let policies = administration || tagged("policymaker");
        let may_use = monitoring || policies || tagged("management");
        Management { may_use, policies, monitoring, administration }
    }
}
