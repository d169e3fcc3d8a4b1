//! Policies: arguments for every queue and exchange whose name matches, which may be changed while they are in use.

use crate::access::PATTERN_BYTES_MAX;
use crate::routing::{
    ArgumentValue, Arguments, InvalidArguments, check_arguments, decode_arguments, encode_arguments,
};
use crate::wire::{DecodeError, Reader, Writer};

/// Policies in the cluster. Each queue is compared with those of its namespace when it or one of them changes.
pub const POLICIES_MAX: usize = 4_096;

/// Longest name of a policy, in bytes.
pub const POLICY_NAME_BYTES_MAX: usize = 255;

/// What a policy is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyTo {
    /// Queues of all kinds, and exchanges.
    #[default]
    All,
    /// Queues of all kinds.
    Queues,
    /// Classic queues.
    ClassicQueues,
    /// Quorum queues.
    QuorumQueues,
    /// Streams.
    Streams,
    /// Exchanges.
    Exchanges,
}

impl ApplyTo {
    const ALL: [ApplyTo; 6] = [
        ApplyTo::All,
        ApplyTo::Queues,
        ApplyTo::ClassicQueues,
        ApplyTo::QuorumQueues,
        ApplyTo::Streams,
        ApplyTo::Exchanges,
    ];

    /// Its name in RabbitMQ's management API.
    pub fn name(self) -> &'static str {
        match self {
            ApplyTo::All => "all",
            ApplyTo::Queues => "queues",
            ApplyTo::ClassicQueues => "classic_queues",
            ApplyTo::QuorumQueues => "quorum_queues",
            ApplyTo::Streams => "streams",
            ApplyTo::Exchanges => "exchanges",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<ApplyTo> {
        ApplyTo::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What tells one policy from all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyKey {
    /// The namespace that it is for.
    pub namespace: String,
    /// Whether it is an operator's: it bounds what others may ask for.
    pub operator: bool,
    /// Its name.
    pub name: String,
}

/// A policy. Of those that match a name the one of the highest priority counts, and no other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyMeta {
    /// Which one it is.
    pub key: PolicyKey,
    /// A regular expression that is found in the names that it is for.
    pub pattern: String,
    /// What it is for.
    pub apply_to: ApplyTo,
    /// The higher one counts; of equal ones that with the smaller name.
    pub priority: i32,
    /// Arguments, by their names without `x-`.
    pub definition: Arguments,
}

/// Why a policy was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// Its name is none.
    #[error("a policy's name has from 1 to {max} bytes", max = POLICY_NAME_BYTES_MAX)]
    Name,
    /// Its pattern is too long.
    #[error("a pattern has at most {max} bytes", max = PATTERN_BYTES_MAX)]
    Pattern,
    /// Its definition is empty.
    #[error("a policy's definition says nothing")]
    Empty,
    /// Its definition is too large.
    #[error(transparent)]
    Definition(#[from] InvalidArguments),
}

impl PolicyMeta {
    /// Checks every bound that needs no knowledge of what arguments mean.
    pub fn check(&self) -> Result<(), InvalidPolicy> {
        if !(1..=POLICY_NAME_BYTES_MAX).contains(&self.key.name.len()) {
            return Err(InvalidPolicy::Name);
        }
        if self.pattern.len() > PATTERN_BYTES_MAX {
            return Err(InvalidPolicy::Pattern);
        }
        if self.definition.is_empty() {
            return Err(InvalidPolicy::Empty);
        }
        Ok(check_arguments(&self.definition)?)
    }

    /// What it says of something.
    pub fn says(&self, name: &str) -> Option<&ArgumentValue> {
        crate::routing::argument(&self.definition, name)
    }

    /// Writes it, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        self.key.encode(out);
        out.str(&self.pattern);
        out.str(self.apply_to.name());
        out.i32(self.priority);
        encode_arguments(&self.definition, out);
    }

    /// Reads what [`PolicyMeta::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<PolicyMeta, DecodeError> {
        let (key, pattern, apply_to) = (PolicyKey::decode(reader)?, reader.str()?, reader.str()?);
        let Some(apply_to) = ApplyTo::from_name(&apply_to) else {
            return Err(reader.error("what a policy is for is not known to this binary"));
        };
        let (priority, definition) = (reader.i32()?, decode_arguments(reader)?);
        Ok(PolicyMeta { key, pattern, apply_to, priority, definition })
    }
}

impl PolicyKey {
    /// Writes it, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.namespace);
        out.u8(u8::from(self.operator));
        out.str(&self.name);
    }

    /// Reads what [`PolicyKey::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<PolicyKey, DecodeError> {
        Ok(PolicyKey { namespace: reader.str()?, operator: reader.bool()?, name: reader.str()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_was_written() {
        for (number, apply_to) in ApplyTo::ALL.into_iter().enumerate() {
            let key = PolicyKey { namespace: "/".into(), operator: number % 2 == 1, name: "ttl".into() };
            let definition = vec![("message-ttl".to_owned(), ArgumentValue::Integer(60_000))];
            let policy = PolicyMeta { key, pattern: "^q".into(), apply_to, priority: -3, definition };
            let mut out = Writer::new();
            policy.encode(&mut out);
            let mut reader = Reader::new("a policy", out.finish());
            assert_eq!(PolicyMeta::decode(&mut reader), Ok(policy.clone()));
            reader.finish().unwrap();
            assert_eq!(policy.check(), Ok(()));
        }
    }

    #[test]
    fn a_policy_has_a_name_and_says_something() {
        let definition = vec![("expires".to_owned(), ArgumentValue::Integer(1))];
        let key = |name: &str| PolicyKey { name: name.into(), ..PolicyKey::default() };
        let policy = PolicyMeta { key: key("p"), definition, ..PolicyMeta::default() };
        let check = |policy: PolicyMeta| policy.check();
        assert_eq!(check(PolicyMeta { key: key(""), ..policy.clone() }), Err(InvalidPolicy::Name));
        assert_eq!(
            check(PolicyMeta { key: key(&"n".repeat(256)), ..policy.clone() }),
            Err(InvalidPolicy::Name)
        );
        let pattern = "p".repeat(PATTERN_BYTES_MAX + 1);
        assert_eq!(check(PolicyMeta { pattern, ..policy.clone() }), Err(InvalidPolicy::Pattern));
        assert_eq!(check(PolicyMeta { definition: Vec::new(), ..policy }), Err(InvalidPolicy::Empty));
    }
}
