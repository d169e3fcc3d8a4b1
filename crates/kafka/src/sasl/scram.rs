//! The server's side of SCRAM (RFC 5802, RFC 7677), without I/O and without channel binding. What is kept of passwords,
//! and how a proof is checked, is `weir-access`'s.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use weir_broker::{ScramCredential, ScramHash};

/// Longest message of a client, in bytes: a name and a nonce, or a nonce and a proof.
const MESSAGE_BYTES_MAX: usize = 4_096;

/// A message that is not what its place asks for; in words for the log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(&'static str);

/// A client's first message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFirst {
    pub(crate) user: String,
    /// What stands in front of the message proper.
    header: String,
    bare: String,
    nonce: String,
}

/// An exchange that waits for the client's proof.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) user: String,
    pub(crate) hash: ScramHash,
    credential: ScramCredential,
    /// The header in base64, as the client has to send it again.
    binding: String,
    nonce: String,
    /// The two messages so far, with a comma behind each.
    said: String,
}

impl ClientFirst {
    /// Reads `n,[a=name],n=name,r=nonce[,extension]*`.
    pub(crate) fn read(message: &[u8]) -> Result<ClientFirst, Malformed> {
        let message = text(message)?;
        let mut parts = message.splitn(3, ',');
        let (binding, authorised, bare) = match (parts.next(), parts.next(), parts.next()) {
            (Some(binding), Some(authorised), Some(bare)) => (binding, authorised, bare),
            _ => return Err(Malformed("the first message has no header")),
        };
        if !matches!(binding, "n" | "y") {
            return Err(Malformed("channel binding is not served"));
        }
        let mut attributes = bare.split(',');
        let user = attributes.next().and_then(|part| part.strip_prefix("n=")).and_then(unescape);
        let user = user.filter(|user| !user.is_empty()).ok_or(Malformed("the first message names nobody"))?;
        let nonce =
            attributes.next().and_then(|part| part.strip_prefix("r=")).filter(|nonce| !nonce.is_empty());
        let nonce = nonce.ok_or(Malformed("the first message has no nonce"))?;
        if attributes.any(|extension| extension == "tokenauth=true") {
            return Err(Malformed("delegation tokens are not served"));
        }
        let as_whom = authorised.strip_prefix("a=").map(unescape);
        if !(authorised.is_empty() || as_whom.flatten().as_ref() == Some(&user)) {
            return Err(Malformed("somebody wants to be taken for somebody else"));
        }
        Ok(ClientFirst {
            header: format!("{binding},{authorised},"),
            bare: bare.to_owned(),
            nonce: nonce.to_owned(),
            user,
        })
    }

    /// The challenge, with the server's part of the nonce, which must not have commas.
    pub(crate) fn challenge(self, credential: ScramCredential, server_nonce: &str) -> (Exchange, Vec<u8>) {
        let nonce = format!("{}{server_nonce}", self.nonce);
        let (salt, iterations) = (STANDARD.encode(&credential.salt), credential.iterations);
        let challenge = format!("r={nonce},s={salt},i={iterations}");
        let exchange = Exchange {
            user: self.user,
            hash: credential.hash,
            credential,
            binding: STANDARD.encode(&self.header),
            nonce,
            said: format!("{},{challenge},", self.bare),
        };
        (exchange, challenge.into_bytes())
    }
}

impl Exchange {
    /// Reads `c=header,r=nonce[,extension]*,p=proof` and checks the proof: the server's own, or none if it is wrong.
    pub(crate) fn finish(&self, message: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let message = text(message)?;
        let (without_proof, proof) =
            message.rsplit_once(",p=").ok_or(Malformed("the last message has no proof"))?;
        let mut attributes = without_proof.split(',');
        if attributes.next().and_then(|part| part.strip_prefix("c=")) != Some(&self.binding) {
            return Err(Malformed("the last message repeats another header"));
        }
        if attributes.next().and_then(|part| part.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(Malformed("the last message repeats another nonce"));
        }
        let proof = STANDARD.decode(proof).map_err(|_| Malformed("the proof is not base64"))?;
        let said = format!("{}{without_proof}", self.said);
        let signature = self.credential.check_proof(said.as_bytes(), &proof);
        Ok(signature.map(|signature| format!("v={}", STANDARD.encode(signature)).into_bytes()))
    }
}

fn text(message: &[u8]) -> Result<&str, Malformed> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(Malformed("the message is too long"));
    }
    std::str::from_utf8(message).map_err(|_| Malformed("the message is not UTF-8"))
}

/// A name in which commas and equals signs are written as `=2C` and `=3D`.
fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut unescaped = parts.next()?.to_owned();
    for part in parts {
        let (letter, rest) = match part.split_at_checked(2)? {
            ("2C", rest) => (',', rest),
            ("3D", rest) => ('=', rest),
            _ => return None,
        };
        unescaped.push(letter);
        unescaped.push_str(rest);
    }
    Some(unescaped)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn credential() -> ScramCredential {
        ScramCredential::decoy(ScramHash::Sha256, "user", b"secret")
    }

    #[test]
    fn first_messages_are_read() {
        let read = |message: &str| ClientFirst::read(message.as_bytes()).map(|first| first.user);
        assert_eq!(read("n,,n=user,r=abc"), Ok("user".into()));
        assert_eq!(read("y,,n=a=2Cb=3Dc,r=abc"), Ok("a,b=c".into()));
        assert_eq!(read("n,a=user,n=user,r=abc,x=y"), Ok("user".into()));
        for refused in [
            "",
            "n",
            "n,,",
            "n,,n=,r=abc",
            "n,,n=user",
            "n,,n=user,r=",
            "n,,n=us=er,r=abc",
            "n,,n=us=2,r=abc",
            "n,,m=x,n=user,r=abc",
            "p=tls-unique,,n=user,r=abc",
            "n,a=other,n=user,r=abc",
            "n,,n=user,r=abc,tokenauth=true",
        ] {
            assert!(read(refused).is_err(), "{refused}");
        }
        assert!(ClientFirst::read(&[0xff; 10]).is_err());
        assert!(read(&format!("n,,n=user,r={}", "a".repeat(5_000))).is_err());
    }

    #[test]
    fn the_last_message_must_belong_to_the_first() {
        let first = ClientFirst::read(b"n,,n=user,r=abc").unwrap();
        let (exchange, challenge) = first.challenge(credential(), "XYZ");
        assert!(challenge.starts_with(b"r=abcXYZ,s=") && challenge.ends_with(b",i=16384"));
        let finish = |message: &str| exchange.finish(message.as_bytes());
        assert_eq!(finish("c=biws,r=abcXYZ,p=AAAA"), Ok(None));
        for refused in
            ["", "c=biws,r=abcXYZ", "c=eSws,r=abcXYZ,p=AAAA", "c=biws,r=abc,p=AAAA", "c=biws,r=abcXYZ,p=*"]
        {
            assert!(finish(refused).is_err(), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(first in "[ny,=a-c 2CDr\\PC]{0,40}", last in "[c=biws,rp*A-Z]{0,60}") {
            let _ = ClientFirst::read(first.as_bytes());
            let (exchange, _) = ClientFirst::read(b"n,,n=user,r=a").unwrap().challenge(credential(), "b");
            prop_assert!(!matches!(exchange.finish(last.as_bytes()), Ok(Some(_))));
        }
    }
}
