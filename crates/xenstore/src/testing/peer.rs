//! The store: nodes, watches and transactions of its clients.
//!
//! Idea: a transaction works on a copy of all nodes, and conflicts if a node that it read or wrote
//! changed meanwhile. Cost: O(nodes) per transaction, O(watches) per change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::Notify;

use crate::message::{Message, MessageBuffer, MessageKind, PAYLOAD_MAX};
use crate::path::StorePath;
use crate::request::texts;

/// Faults that a test can turn on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every transaction conflicts with another one.
    Conflicts,
    /// Writes at or below this path are refused.
    Denied(String),
    /// Writes are refused because the quota is used up.
    Full,
    /// Requests are read and not answered.
    Silent,
}

/// A xenstore and its clients.
#[derive(Debug, Default)]
pub struct StorePeer {
    nodes: Nodes,
    /// Number of times that a node was created, changed or removed.
    generation: u64,
    /// The generation of each node's last change, also of removed nodes.
    changed: BTreeMap<String, u64>,
    clients: BTreeMap<u32, PeerClient>,
    last_client: u32,
    last_transaction: u32,
    /// The faults that are on.
    pub faults: Vec<Fault>,
    /// Number of messages received from clients.
    pub received: u64,
}

type Nodes = BTreeMap<String, Vec<u8>>;

#[derive(Debug, Default)]
struct PeerClient {
    received: MessageBuffer,
    outgoing: Vec<u8>,
    /// Paths and tokens.
    watches: Vec<(String, String)>,
    transactions: BTreeMap<u32, Transaction>,
    /// Notified of bytes to send.
    wakes: Arc<Notify>,
}

#[derive(Debug)]
struct Transaction {
    begun: u64,
    nodes: Nodes,
    /// Nodes that it read or wrote.
    seen: BTreeSet<String>,
    changes: Vec<TreeChange>,
}

/// A node with its new value, or one that is removed.
type TreeChange = (String, Option<Vec<u8>>);

/// An error's name.
type PeerRefusal = &'static str;

impl StorePeer {
    /// An empty store.
    pub fn new() -> StorePeer {
        StorePeer::default()
    }

    /// Adds a client and returns its number. The other value is notified when there are bytes to
    /// send to the client.
    pub fn connect(&mut self) -> (u32, Arc<Notify>) {
        self.last_client += 1;
        let client = PeerClient::default();
        let wakes = Arc::clone(&client.wakes);
        self.clients.insert(self.last_client, client);
        (self.last_client, wakes)
    }

    /// Removes a client.
    pub fn disconnect(&mut self, client: u32) {
        self.clients.remove(&client);
    }

    /// Takes the bytes to send to a client.
    pub fn take_outgoing(&mut self, client: u32) -> Vec<u8> {
        self.clients.get_mut(&client).map(|it| std::mem::take(&mut it.outgoing)).unwrap_or_default()
    }

    /// Takes in bytes of a client.
    ///
    /// # Errors
    /// The bytes are no messages; the text says why.
    pub fn receive(&mut self, client: u32, bytes: &[u8]) -> Result<(), String> {
        let Some(it) = self.clients.get_mut(&client) else { return Ok(()) };
        it.received.push(bytes);
        loop {
            let Some(it) = self.clients.get_mut(&client) else { return Ok(()) };
            let message = it.received.next_message().map_err(|error| error.to_string())?;
            let Some(message) = message else { return Ok(()) };
            self.received += 1;
            if !self.faults.contains(&Fault::Silent) {
                self.answer(client, &message);
            }
        }
    }

    /// Writes a node as the toolstack or a guest does.
    pub fn write(&mut self, path: &str, value: impl AsRef<[u8]>) {
        self.apply((path.to_owned(), Some(value.as_ref().to_vec())));
    }

    /// Removes a node and all below it as the toolstack does.
    pub fn remove(&mut self, path: &str) {
        self.apply((path.to_owned(), None));
    }

    /// The value of a node.
    pub fn read(&self, path: &str) -> Option<&[u8]> {
        self.nodes.get(path).map(Vec::as_slice)
    }

    fn answer(&mut self, client: u32, message: &Message) {
        let transaction = message.transaction;
        let mut events = Vec::new();
        let answer = self.carry_out(client, message, &mut events);
        let (kind, payload) = match answer {
            Ok(payload) if payload.len() <= PAYLOAD_MAX => (message.kind, payload),
            Ok(_) => (MessageKind::Error, texts(&["E2BIG"])),
            Err(name) => (MessageKind::Error, texts(&[name])),
        };
        self.send(client, Message { kind, request: message.request, transaction, payload });
        for (path, token) in events {
            self.send_event(client, &path, &token);
        }
    }

    /// Carries out a request and returns the answer's payload. Events for the client itself, to be
    /// sent after the answer, go to `events`.
    fn carry_out(
        &mut self,
        client: u32,
        message: &Message,
        events: &mut Vec<(String, String)>,
    ) -> Result<Vec<u8>, PeerRefusal> {
        let ok = texts(&["OK"]);
        let (first, rest) = first_text(&message.payload)?;
        let id = message.transaction;
        match message.kind {
            MessageKind::TransactionStart => {
                self.last_transaction += 1;
                let transaction = Transaction {
                    begun: self.generation,
                    nodes: self.nodes.clone(),
                    seen: BTreeSet::new(),
                    changes: Vec::new(),
                };
                let it = self.clients.get_mut(&client).ok_or("EIO")?;
                it.transactions.insert(self.last_transaction, transaction);
                return Ok(texts(&[&self.last_transaction.to_string()]));
            }
            MessageKind::TransactionEnd => {
                let it = self.clients.get_mut(&client).ok_or("EIO")?;
                let transaction = it.transactions.remove(&id).ok_or("ENOENT")?;
                return self.end(transaction, first == "T").map(|()| ok);
            }
            _ => {}
        }
        let path = checked(first)?;
        match message.kind {
            MessageKind::Watch | MessageKind::Unwatch => {
                let (token, _) = first_text(rest)?;
                let watch = (path.to_owned(), token.to_owned());
                let it = self.clients.get_mut(&client).ok_or("EIO")?;
                let place = it.watches.iter().position(|known| *known == watch);
                match (message.kind, place) {
                    (MessageKind::Watch, Some(_)) => return Err("EEXIST"),
                    (MessageKind::Watch, None) => {
                        it.watches.push(watch.clone());
                        events.push(watch);
                    }
                    (_, Some(place)) => drop(it.watches.remove(place)),
                    (_, None) => return Err("ENOENT"),
                }
                Ok(ok)
            }
            MessageKind::Read => {
                let nodes = self.nodes_of(client, id, path)?;
                nodes.get(path).cloned().ok_or("ENOENT")
            }
            MessageKind::Directory => {
                let nodes = self.nodes_of(client, id, path)?;
                Ok(texts(&children(nodes, path).ok_or("ENOENT")?))
            }
            MessageKind::DirectoryPart => {
                let (offset, _) = first_text(rest)?;
                let offset: usize = offset.parse().map_err(|_| "EINVAL")?;
                let generation = self.changed.get(path).copied().unwrap_or_default().to_string();
                let nodes = self.nodes_of(client, id, path)?;
                let names = texts(&children(nodes, path).ok_or("ENOENT")?);
                part(&generation, names.get(offset..).ok_or("EINVAL")?)
            }
            MessageKind::Write => {
                self.may_write(path)?;
                self.change(client, id, (path.to_owned(), Some(rest.to_vec())))?;
                Ok(ok)
            }
            MessageKind::Remove => {
                self.may_write(path)?;
                let nodes = self.nodes_of(client, id, path)?;
                if !is_node(nodes, path) {
                    // To remove a missing node succeeds, provided that its parent exists.
                    return is_node(nodes, parent(path)).then_some(ok).ok_or("ENOENT");
                }
                self.change(client, id, (path.to_owned(), None))?;
                Ok(ok)
            }
            _ => Err("EINVAL"),
        }
    }

    fn may_write(&self, path: &str) -> Result<(), PeerRefusal> {
        for fault in &self.faults {
            match fault {
                Fault::Denied(below) if is_at_or_below(path, below) => return Err("EACCES"),
                Fault::Full => return Err("ENOSPC"),
                _ => {}
            }
        }
        Ok(())
    }

    /// The nodes that a client sees when it reads the node `path`.
    fn nodes_of(&mut self, client: u32, id: u32, path: &str) -> Result<&Nodes, PeerRefusal> {
        if id == 0 {
            return Ok(&self.nodes);
        }
        let it = self.clients.get_mut(&client).ok_or("EIO")?;
        let transaction = it.transactions.get_mut(&id).ok_or("ENOENT")?;
        transaction.seen.insert(path.to_owned());
        Ok(&transaction.nodes)
    }

    fn change(&mut self, client: u32, id: u32, change: TreeChange) -> Result<(), PeerRefusal> {
        if id == 0 {
            self.apply(change);
            return Ok(());
        }
        let it = self.clients.get_mut(&client).ok_or("EIO")?;
        let transaction = it.transactions.get_mut(&id).ok_or("ENOENT")?;
        transaction.seen.insert(change.0.clone());
        apply(&mut transaction.nodes, &change);
        transaction.changes.push(change);
        Ok(())
    }

    fn end(&mut self, transaction: Transaction, commits: bool) -> Result<(), PeerRefusal> {
        if !commits {
            return Ok(());
        }
        let is_newer = |path: &String| {
            self.changed.get(path).is_some_and(|generation| *generation > transaction.begun)
        };
        if self.faults.contains(&Fault::Conflicts) || transaction.seen.iter().any(is_newer) {
            return Err("EAGAIN");
        }
        for change in transaction.changes {
            self.apply(change);
        }
        Ok(())
    }

    /// Changes a node, and sends the events of its watches.
    fn apply(&mut self, change: TreeChange) {
        let path = change.0.clone();
        self.generation += 1;
        let touched = apply(&mut self.nodes, &change);
        for node in &touched {
            self.changed.insert(node.clone(), self.generation);
        }
        // A child has appeared or vanished.
        self.changed.insert(parent(&path).to_owned(), self.generation);
        let removed: &[String] = if change.1.is_none() { &touched } else { &[] };
        let mut events = Vec::new();
        for (client, it) in &self.clients {
            for (watched, token) in &it.watches {
                if is_at_or_below(&path, watched) {
                    events.push((*client, path.clone(), token.clone()));
                } else if removed.contains(watched) {
                    events.push((*client, watched.clone(), token.clone()));
                }
            }
        }
        for (client, path, token) in events {
            self.send_event(client, &path, &token);
        }
    }

    fn send_event(&mut self, client: u32, path: &str, token: &str) {
        let payload = texts(&[path, token]);
        let message =
            Message { kind: MessageKind::WatchEvent, request: 0, transaction: 0, payload };
        self.send(client, message);
    }

    fn send(&mut self, client: u32, message: Message) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        // All payloads were bounded before.
        let _ = message.write(&mut client.outgoing);
        client.wakes.notify_one();
    }
}

/// Changes nodes; returns those that were created, changed or removed.
fn apply(nodes: &mut Nodes, (path, value): &TreeChange) -> Vec<String> {
    let mut touched = vec![path.clone()];
    match value {
        Some(value) => {
            nodes.insert(path.clone(), value.clone());
            let mut above = parent(path);
            while above != "/" && !nodes.contains_key(above) {
                nodes.insert(above.to_owned(), Vec::new());
                touched.push(above.to_owned());
                above = parent(above);
            }
            touched.push(above.to_owned());
        }
        None => {
            touched.extend(nodes.keys().filter(|it| is_below(it, path)).cloned());
            for node in &touched {
                nodes.remove(node);
            }
        }
    }
    touched
}

/// The names of a node's children, in order; `None` if there is no such node.
fn children<'a>(nodes: &'a Nodes, path: &str) -> Option<Vec<&'a str>> {
    if !is_node(nodes, path) {
        return None;
    }
    let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
    let names = nodes.range(prefix.clone()..).map(|(node, _)| node.as_str());
    let names = names.take_while(|node| node.starts_with(&prefix));
    Some(names.map(|node| &node[prefix.len()..]).filter(|it| !it.contains('/')).collect())
}

/// As many whole names as fit an answer, after the generation.
fn part(generation: &str, names: &[u8]) -> Result<Vec<u8>, PeerRefusal> {
    let mut payload = texts(&[generation]);
    let room = PAYLOAD_MAX - payload.len();
    if names.len() < room {
        payload.extend_from_slice(names);
        payload.push(0);
        return Ok(payload);
    }
    let end = names[..room].iter().rposition(|byte| *byte == 0).ok_or("E2BIG")?;
    payload.extend_from_slice(&names[..=end]);
    Ok(payload)
}

/// The first text of a payload, and what follows it.
fn first_text(payload: &[u8]) -> Result<(&str, &[u8]), PeerRefusal> {
    let end = payload.iter().position(|byte| *byte == 0).ok_or("EINVAL")?;
    Ok((str::from_utf8(&payload[..end]).map_err(|_| "EINVAL")?, &payload[end + 1..]))
}

fn checked(path: &str) -> Result<&str, PeerRefusal> {
    path.parse::<StorePath>().map(|_| path).map_err(|_| "EINVAL")
}

fn is_node(nodes: &Nodes, path: &str) -> bool {
    path == "/" || nodes.contains_key(path)
}

/// The node above.
fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(end) => &path[..end],
    }
}

fn is_below(path: &str, above: &str) -> bool {
    above == "/" || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path == above || is_below(path, above)
}
