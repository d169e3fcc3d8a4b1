//! The AMQP 0-9-1 wire format with RabbitMQ's extensions, without I/O.
//!
//! Bytes in, plain structs out, and back; for the broker's side and the client's alike. [`Frame::parse`] takes frames
//! out of a buffer, an [`Assembler`] per channel makes commands of them, and a [`Writer`] turns methods and messages
//! into frames again. Strings and bodies are slices of the buffers they came in, and large bodies go out from where
//! they lie. Every parser is total: any bytes give a value or an error that proposes a [`ReplyCode`], and nothing is
//! reserved on the word of a length.
//!
//! Where RabbitMQ differs from the specification, this is RabbitMQ's protocol: the tags of tables, frames that are up
//! to eight bytes too long, its own methods.
//!
//! This crate keeps no session: it does not know which channels are open, what was negotiated, or which method may
//! follow which.
//!
//! # A client and a broker
//!
//! ```
//! use bytes::{Bytes, BytesMut};
//! use weir_amqp_wire::methods::basic;
//! use weir_amqp_wire::{Assembler, BasicProperties, Frame, Method, Parsed, ShortStr, Writer};
//!
//! const FRAME_MAX: u32 = 131_072;
//!
//! // A client publishes.
//! let mut writer = Writer::new(FRAME_MAX);
//! let publish = basic::Publish { routing_key: ShortStr::from_static("orders"), ..Default::default() };
//! let properties = BasicProperties { delivery_mode: Some(2), ..Default::default() };
//! writer.content(1, &publish, &properties, &Bytes::from_static(b"an order"))?;
//!
//! // The broker reads what has come so far.
//! let mut received = BytesMut::from(&writer.into_contiguous()[..]);
//! let mut channel = Assembler::new(16 * 1024 * 1024);
//! let command = loop {
//!     match Frame::parse(&mut received, FRAME_MAX)? {
//!         Parsed::Frame(frame) => {
//!             if let Some(command) = channel.push(frame)? {
//!                 break command;
//!             }
//!         }
//!         Parsed::Missing(bytes) => panic!("{bytes} bytes have not come yet"),
//!     }
//! };
//! let Method::BasicPublish(publish) = command.method else { panic!() };
//! assert_eq!(publish.routing_key, "orders");
//!
//! // It delivers to a consumer.
//! let content = command.content.unwrap_or_default();
//! let deliver = basic::Deliver {
//!     consumer_tag: ShortStr::from_static("ctag"),
//!     delivery_tag: 1,
//!     redelivered: false,
//!     exchange: publish.exchange,
//!     routing_key: publish.routing_key,
//! };
//! let mut writer = Writer::new(FRAME_MAX);
//! writer.content(1, &deliver, &content.properties, &content.body.into_contiguous())?;
//! for chunk in writer.take() {
//!     // To the socket.
//!     # drop(chunk);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod assembler;
mod body;
mod content;
mod error;
mod field;
mod frame;
#[cfg(any(test, feature = "generate"))]
mod generate;
mod method;
pub mod methods;
mod protocol_header;
mod reader;
mod reply_code;
mod schema;
mod secret;
mod short_str;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use assembler::{Assembler, Command, Content};
pub use body::Body;
pub use content::{BasicProperties, ContentHeader};
pub use error::{AssemblyError, DecodeError, EncodeError, FrameError, TooLong, Why};
pub use frame::{FRAME_MAX_MIN, FRAME_OVERHEAD_BYTES, Frame, FrameBuffer, FrameType, Parsed};
#[cfg(any(test, feature = "generate"))]
pub use generate::Source;
pub use method::{ContentMethod, Method, MethodFields, MethodIds};
pub use protocol_header::{Amqp10Layer, PROTOCOL_HEADER_BYTES, ProtocolHeader};
pub use reader::TABLE_ENTRIES_MAX;
pub use reply_code::{REPLY_SUCCESS, ReplyCode, Scope};
pub use secret::Secret;
pub use short_str::{SHORT_STR_BYTES_MAX, ShortStr};
pub use table::{Decimal, TABLE_DEPTH_MAX, Table, Value};
pub use writer::{SPLICE_BYTES_MIN, Writer};
