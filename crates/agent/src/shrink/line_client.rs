//! A line-wise conversation with a server on this machine.
//!
//! Idea: connect, ask, read, with a time limit on each step; no name is ever looked up.
//! Limits: a line has at most [`LINE_BYTES_MAX`].

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest line read.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Longest wait for each step: a server that needs longer is not to be burdened.
const STEP_TIME_MAX: Duration = Duration::from_secs(5);

trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// The conversation.
pub(crate) struct Client {
    stream: BufReader<Box<dyn Duplex>>,
}

impl Client {
    /// Connects to `address`, an IP address and port or the path of a socket.
    pub(crate) fn connect(address: &str) -> Result<Client, String> {
        let stream: io::Result<Box<dyn Duplex>> = if address.starts_with('/') {
            UnixStream::connect(address).and_then(|stream| {
                stream.set_read_timeout(Some(STEP_TIME_MAX))?;
                stream.set_write_timeout(Some(STEP_TIME_MAX))?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            })
        } else {
            let ip: SocketAddr = address.parse().map_err(|_| {
                format!(
                    "address `{address}`: expected an IP address and a port, such as \
                     127.0.0.1:6379, or the path of a socket"
                )
            })?;
            TcpStream::connect_timeout(&ip, STEP_TIME_MAX).and_then(|stream| {
                stream.set_read_timeout(Some(STEP_TIME_MAX))?;
                stream.set_write_timeout(Some(STEP_TIME_MAX))?;
                Ok(Box::new(stream) as Box<dyn Duplex>)
            })
        };
        let stream = stream.map_err(|error| format!("{address}: {error}"))?;
        Ok(Client { stream: BufReader::new(stream) })
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.get_mut().write_all(bytes).map_err(|error| error.to_string())
    }

    /// The next line without its end.
    pub(crate) fn line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let read = (&mut self.stream).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        read.map_err(|error| error.to_string())?;
        if line.pop() != Some(b'\n') {
            return Err("ended within a line".to_owned());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        String::from_utf8(line).map_err(|_| "a line that is not UTF-8".to_owned())
    }

    /// The next `bytes`.
    pub(crate) fn exactly(&mut self, bytes: usize) -> Result<Vec<u8>, String> {
        let mut text = vec![0; bytes];
        self.stream.read_exact(&mut text).map_err(|error| error.to_string())?;
        Ok(text)
    }
}
