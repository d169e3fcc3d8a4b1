//! What consumers of the classic group protocol tell each other through the broker, inside the `metadata` of
//! JoinGroup and the `assignment` of SyncGroup. A broker looks into it only to describe a group.

use crate::error::{DecodeError, EncodeError, Why};
use crate::reader::Reader;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::wire::{Version, Wire};
use crate::writer::Writer;
use bytes::{Bytes, BytesMut};

/// Newest version of both messages that is written and read in full.
pub const CONSUMER_PROTOCOL_VERSION_MAX: i16 = 3;

messages! {
    /// What a consumer wants to read and what it owns already.
    ConsumerProtocolSubscription {
        [0+]    topics: Vec<KafkaStr>,
        [0+]    user_data: Option<Bytes>,
        [1+]    owned_partitions: Vec<TopicPartition>,
        [2+]    generation_id: i32 = -1,
        [3+]    rack_id: Option<KafkaStr>,
    }

    /// What a consumer shall read.
    ConsumerProtocolAssignment {
        [0+]    assigned_partitions: Vec<TopicPartition>,
        [0+]    user_data: Option<Bytes>,
    }

    /// Partitions of one topic.
    TopicPartition {
        [0+]    topic: KafkaStr,
        [0+]    partitions: Vec<i32>,
    }
}

macro_rules! with_version_in_front {
    ($($message:ident),*) => { $(
        impl $message {
            /// Reads the message with the version in front of it. One newer than
            /// [`CONSUMER_PROTOCOL_VERSION_MAX`] is read as that one: later versions only append fields, which
            /// is also why bytes behind the message are passed over.
            pub fn decode(data: Bytes) -> Result<Self, DecodeError> {
                let what = stringify!($message);
                let mut reader = Reader::new(data);
                let number = i16::read(&mut reader, version(0)).map_err(|error| DecodeError { what, ..error })?;
                if number < 0 {
                    return Err(DecodeError { what, at: 0, why: Why::UnsupportedVersion(number) });
                }
                Self::read(&mut reader, version(number.min(CONSUMER_PROTOCOL_VERSION_MAX)))
            }

            /// A random one of this version.
            #[cfg(any(test, feature = "generate"))]
            pub fn random(number: i16, source: &mut crate::Source) -> Self {
                Self::generate(source, version(number))
            }

            /// Writes the message with the version in front of it.
            pub fn encode(&self, number: i16) -> Result<Bytes, EncodeError> {
                if !(0..=CONSUMER_PROTOCOL_VERSION_MAX).contains(&number) {
                    let api = stringify!($message);
                    return Err(EncodeError::UnsupportedVersion { api, version: number });
                }
                let mut writer = Writer::new();
                number.write(&mut writer, version(number));
                self.write(&mut writer, version(number));
                Ok(writer.finish()?.iter().flatten().copied().collect::<BytesMut>().freeze())
            }
        }
    )* };
}

with_version_in_front!(ConsumerProtocolSubscription, ConsumerProtocolAssignment);

fn version(number: i16) -> Version {
    Version { number, flexible: false }
}
