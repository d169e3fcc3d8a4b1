//! What the broker must know of a message that it routes once more.

use weir_amqp_wire::ShortStr;
use weir_broker::parking::RoutingProperties;
use weir_broker::queues::MessageReader;
use weir_model::batch::Record;

use crate::message::Message;
use crate::values::Asked;

/// Reads records as AMQP messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader;

impl MessageReader for Reader {
    fn routing_properties(&self, record: &Record) -> Option<Box<RoutingProperties>> {
        let message = Message::from_record(record.clone(), &ShortStr::default());
        RoutingProperties::of(&Asked::new(&message.properties))
    }

    fn priority(&self, record: &Record) -> Option<u8> {
        Message::priority_of(record)
    }
}
