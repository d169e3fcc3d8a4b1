//! Consistent-hash exchanges: the message goes to one binding, chosen by a hash of its key, of a header or
//! of a property, in such a way that few messages move when a binding comes or goes.
//!
//! Every binding owns as many buckets as its key says, in the order of binding, and a hash is given a
//! bucket by jump consistent hashing (Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash
//! Algorithm"):
//!
//! ```text
//!   bindings     q1 (weight 2)   q2 (weight 1)   q3 (weight 3)
//!   buckets      0   1           2               3   4   5
//! ```
//!
//! The same as in RabbitMQ's plugin: weights, buckets in the order of binding, jump consistent hashing,
//! and the consequence that a binding at the end moves no message but its own, while one that goes from
//! the middle shifts all behind it. That a message without the header or property goes with all others
//! of that sort to one queue is what the plugin did up to 3.12; in later versions it is an error.
//!
//! What differs: the hash and the random generator of the algorithm, so that a key goes to another queue
//! than in RabbitMQ; the second binding of a queue adds its weight, where RabbitMQ ignores it; and a
//! weight has a bound.
//!
//! The buckets are laid out by the first message after a change, in time and memory of the number of
//! bindings and whatever the weights.

use std::sync::{Arc, OnceLock};

use weir_model::routing::{ArgumentValue, BindingMeta, HashSource};
use weir_model::wire::Writer;

use super::targets::Target;
use super::{Bound, InvalidBinding};
use crate::hash;
use crate::limits::{BINDINGS_PER_EXCHANGE_MAX, HASH_WEIGHT_MAX};
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;

// The jump's random generator gives 31 bits; it could not tell more buckets apart.
const _: () = assert!((BINDINGS_PER_EXCHANGE_MAX as u64) * (HASH_WEIGHT_MAX as u64) < 1 << 31);

#[derive(Clone, Debug, Default)]
pub(crate) struct RingTable {
    shares: SharedMap<Arc<BindingMeta>, Share>,
    buckets: Arc<OnceLock<Buckets>>,
}

/// What one binding owns.
#[derive(Clone, Debug)]
struct Share {
    serial: u64,
    weight: u32,
    target: Target,
}

/// The bindings in their order, each with the bucket behind its last.
#[derive(Debug)]
struct Buckets {
    ends: Vec<u64>,
    targets: Vec<Target>,
}

impl RingTable {
    pub(super) fn add(&mut self, bound: &Bound<'_>) -> Result<(), InvalidBinding> {
        let key = String::from_utf8_lossy(&bound.binding.key);
        let weight = key.parse::<u32>().ok().filter(|weight| (1..=HASH_WEIGHT_MAX).contains(weight));
        let Some(weight) = weight else { return Err(InvalidBinding::Weight(key.into_owned())) };
        let share = Share { serial: bound.serial, weight, target: bound.target.clone() };
        self.shares.insert(Arc::clone(bound.binding), share);
        self.buckets = Arc::default();
        Ok(())
    }

    pub(super) fn remove(&mut self, binding: &BindingMeta) {
        self.shares.remove(binding);
        self.buckets = Arc::default();
    }

    pub(super) fn route(&self, source: &HashSource, message: &Routed<'_>, route: &mut Route) {
        let buckets = self.buckets.get_or_init(|| Buckets::of(&self.shares));
        if let Some(target) = buckets.target(hash_of(source, message)) {
            route.add(target);
        }
    }
}

impl Buckets {
    fn of(shares: &SharedMap<Arc<BindingMeta>, Share>) -> Buckets {
        let mut in_order = Vec::with_capacity(shares.len());
        shares.for_each(|binding, share| in_order.push((share.serial, binding, share)));
        // Bindings without a place of their own are in the order of their content, everywhere the same.
        in_order.sort_unstable_by_key(|(serial, binding, _)| (*serial, *binding));
        let mut buckets = Buckets { ends: Vec::new(), targets: Vec::new() };
        let mut end = 0;
        for (_, _, share) in in_order {
            end += u64::from(share.weight);
            buckets.ends.push(end);
            buckets.targets.push(share.target.clone());
        }
        buckets
    }

    fn target(&self, hash: u64) -> Option<&Target> {
        let bucket = jump(hash, *self.ends.last()?);
        self.targets.get(self.ends.partition_point(|end| *end <= bucket))
    }
}

/// The bucket of a hash among `buckets`, at least one: jump consistent hashing.
fn jump(hash: u64, buckets: u64) -> u64 {
    let (mut state, mut bucket, mut next) = (hash, 0, 0);
    while next < buckets {
        bucket = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let draw = ((state >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * ((1u64 << 31) as f64 / draw)) as u64;
    }
    bucket
}

fn hash_of(source: &HashSource, message: &Routed<'_>) -> u64 {
    let properties = message.properties;
    match source {
        HashSource::RoutingKey => hash::of_bytes(message.keys.first().copied().unwrap_or_default()),
        HashSource::MessageId => hash::of_bytes(properties.message_id().unwrap_or_default()),
        HashSource::CorrelationId => hash::of_bytes(properties.correlation_id().unwrap_or_default()),
        HashSource::Timestamp => hash::of_bytes(&properties.timestamp().unwrap_or_default().to_le_bytes()),
        HashSource::Header(name) => {
            let mut headers = properties.headers().iter();
            match headers.rfind(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value) {
                None => hash::of_bytes(b""),
                Some(ArgumentValue::Bytes(bytes)) => hash::of_bytes(bytes),
                Some(other) => {
                    let mut out = Writer::new();
                    other.encode(&mut out);
                    hash::of_bytes(&out.finish())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_more_takes_its_share_from_all_and_moves_nothing_else() {
        const HASHES: u64 = 20_000;
        let buckets_of = |buckets| (0..HASHES).map(move |number| jump(hash::mix(number), buckets));
        for buckets in [1, 2, 3, 10, 99] {
            let moved = buckets_of(buckets)
                .zip(buckets_of(buckets + 1))
                .filter(|(before, after)| before != after)
                .inspect(|(_, after)| assert_eq!(*after, buckets))
                .count() as f64;
            let share = HASHES as f64 / (buckets + 1) as f64;
            assert!((moved - share).abs() < 6.0 * share.sqrt(), "{moved} of {share} moved");
        }
    }

    #[test]
    fn it_is_the_algorithm_of_the_paper() {
        // From the paper's own code, as other implementations have it in their tests.
        assert_eq!(jump(1, 1), 0);
        assert_eq!(jump(42, 57), 43);
        assert_eq!(jump(0xdead_10cc, 1), 0);
        assert_eq!(jump(0xdead_10cc, 666), 361);
        assert_eq!(jump(256, 1024), 520);
    }
}
