//! What an AMQP client sends: frames that make commands. What was read can be written, and makes the same commands
//! again; both kinds of buffer give the same frames.

use bytes::{Bytes, BytesMut};
use weir_amqp_wire::methods::basic;
use weir_amqp_wire::{
    Assembler, BasicProperties, Command, Content, Frame, Method, Parsed, ProtocolHeader, Source, Writer,
};

const FRAME_MAX: u32 = 8 * 1024;
const BODY_BYTES_MAX: u64 = 64 * 1024;

pub fn run(data: &[u8]) {
    let _ = ProtocolHeader::parse(data);
    let commands = commands(BytesMut::from(data), FRAME_MAX);
    let written = write(&commands);
    // A frame may come in a little larger than the limit, and would not go out so: there is none here.
    let again = self::commands(BytesMut::from(&written[..]), 0);
    assert_eq!(write(&again), written);
    assert_eq!(again.len(), commands.len());
}

/// The commands up to the first error.
fn commands(mut buffer: BytesMut, frame_max: u32) -> Vec<Command> {
    let mut shared = Bytes::copy_from_slice(&buffer);
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut commands = Vec::new();
    loop {
        let parsed = Frame::parse(&mut buffer, frame_max);
        assert_eq!(Frame::parse(&mut shared, frame_max), parsed);
        let Ok(Parsed::Frame(frame)) = parsed else { return commands };
        match assembler.push(frame) {
            Ok(command) => commands.extend(command),
            Err(_) => return commands,
        }
    }
}

fn write(commands: &[Command]) -> Bytes {
    let mut writer = Writer::new(0);
    for command in commands {
        let written = match (&command.method, &command.content) {
            (Method::BasicPublish(publish), Some(Content { properties, body })) => {
                writer.content(1, publish, properties, &body.clone().into_contiguous())
            }
            (Method::BasicReturn(returned), Some(Content { properties, body })) => {
                writer.content(1, returned, properties, &body.clone().into_contiguous())
            }
            (Method::BasicDeliver(deliver), Some(Content { properties, body })) => {
                writer.content(1, deliver, properties, &body.clone().into_contiguous())
            }
            (Method::BasicGetOk(get_ok), Some(Content { properties, body })) => {
                writer.content(1, get_ok, properties, &body.clone().into_contiguous())
            }
            (method, content) => {
                assert_eq!(content.is_some(), method.has_content());
                writer.method(1, method.clone())
            }
        };
        written.expect("what was read can be written");
    }
    writer.into_contiguous()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut source = Source::new(60);
    let mut seeds = vec![ProtocolHeader::SUPPORTED.to_vec()];
    for round in 0..20 {
        let mut writer = Writer::new(0);
        for method in Method::generate_each(&mut source) {
            if !method.has_content() && source.one_in(20) {
                writer.method(1, method).expect("a generated method can be written");
            }
        }
        let body = Bytes::from(vec![7; [0, 5, 5_000][round % 3]]);
        let properties = BasicProperties::generate(&mut source);
        writer
            .content(1, &basic::Publish::default(), &properties, &body)
            .expect("generated properties can be written");
        writer.heartbeat();
        seeds.push(writer.into_contiguous().to_vec());
    }
    seeds
}
