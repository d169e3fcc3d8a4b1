//! Commands of the meta shard that concern policies.

use std::sync::Arc;

use weir_model::command::{Outcome, Refusal};
use weir_model::policy::{POLICIES_MAX, PolicyKey, PolicyMeta};

use super::meta::limit;
use super::{Context, Effect, Machine};

impl Machine {
    pub(super) fn put_policy(
        &mut self,
        context: Context,
        policy: &PolicyMeta,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if let Some(refused) = self.check_namespace(&policy.key.namespace) {
            return refused;
        }
        let policies = self.topology.policies();
        if policies.len() >= POLICIES_MAX && !policies.contains_key(&policy.key) {
            return limit("policies", POLICIES_MAX);
        }
        Arc::make_mut(&mut self.topology).put_policy(policy.clone(), context.index);
        effects.push(Effect::TopologyChanged);
        Outcome::Done
    }

    pub(super) fn delete_policy(
        &mut self,
        context: Context,
        key: &PolicyKey,
        effects: &mut Vec<Effect>,
    ) -> Outcome {
        if !self.topology.policies().contains_key(key) {
            return Outcome::Refused(Refusal::UnknownPolicy(key.name.clone()));
        }
        Arc::make_mut(&mut self.topology).remove_policies(|known| known == key, context.index);
        effects.push(Effect::TopologyChanged);
        Outcome::Done
    }
}
