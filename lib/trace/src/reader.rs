//! Reads a trace, block by block.
//!
//! Idea: bytes of the source are pushed into the parser until a block is full; the caller's vector
//! is reused. Cost: a buffer of [`READ_BYTES`], a block, and the state of source and parser;
//! constant for a trace of any length.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::source::Source;
use crate::{Compression, Fault, Format, Options, Parser, TraceError};

/// Bytes pushed into the parser at a time: few enough to stay in the second-level cache between
/// decompressing and parsing.
const READ_BYTES: usize = 128 << 10;

/// Name of standard input in messages.
const STDIN: &str = "standard input";

/// How much of a trace has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read of the file itself, compressed if it is.
    pub bytes_read: u64,
    /// Size of the file in bytes when it was opened; `None` for a stream.
    pub bytes_total: Option<u64>,
    /// Number of references returned.
    pub references: u64,
    /// Number of bad records skipped.
    pub skipped: u64,
}

/// Reads a trace.
pub struct TraceReader {
    name: String,
    format: Format,
    source: Source,
    parser: Parser,
    buffer: Box<[u8]>,
    /// The range of the buffer that is not parsed yet.
    begin: usize,
    end: usize,
    ended: bool,
    bytes_total: Option<u64>,
    references: u64,
}

impl TraceReader {
    /// Opens a file; its name gives the format unless the options do.
    ///
    /// # Errors
    /// If it cannot be opened or read, its format is unknown, or the options do not fit the format.
    pub fn open(path: &Path, options: &Options) -> Result<TraceReader, TraceError> {
        let name = path.display().to_string();
        let cannot_open = |source| TraceError::Open { name: name.clone(), source };
        let file = File::open(path).map_err(cannot_open)?;
        let metadata = file.metadata().map_err(cannot_open)?;
        let bytes_total = metadata.is_file().then_some(metadata.len());
        let format = options.format.or_else(|| Format::from_path(path));
        let compression = Compression::from_path(path);
        let mut reader = TraceReader::new(name, Box::new(file), format, compression, options)?;
        reader.bytes_total = bytes_total;
        Ok(reader)
    }

    /// Reads standard input; the options must give the format. The first bytes show the
    /// compression.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn stdin(options: &Options) -> Result<TraceReader, TraceError> {
        TraceReader::from_read(STDIN, Box::new(io::stdin()), options)
    }

    /// Reads any stream, called `name` in messages; the options must give the format.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub fn from_read(
        name: &str,
        stream: Box<dyn Read + Send>,
        options: &Options,
    ) -> Result<TraceReader, TraceError> {
        let name = name.to_owned();
        match options.format {
            None => Err(TraceError::FormatNotSpecified { name }),
            format => TraceReader::new(name, stream, format, None, options),
        }
    }

    fn new(
        name: String,
        stream: Box<dyn Read + Send>,
        format: Option<Format>,
        compression: Option<Compression>,
        options: &Options,
    ) -> Result<TraceReader, TraceError> {
        let Some(format) = format else { return Err(TraceError::FormatUnknown { name }) };
        let parser = match Parser::new(format, options) {
            Ok(parser) => parser,
            Err(fault) => return Err(TraceError::Options { name, fault }),
        };
        let source = match Source::new(stream, compression) {
            Ok(source) => source,
            Err(source) => return Err(TraceError::Read { name, references: 0, source }),
        };
        Ok(TraceReader {
            name,
            format,
            source,
            parser,
            buffer: vec![0; READ_BYTES].into(),
            begin: 0,
            end: 0,
            ended: false,
            bytes_total: None,
            references: 0,
        })
    }

    /// Empties `out` and fills it with the next references: [`crate::BLOCK_REFERENCES`] of them,
    /// some more if the last record has several, or fewer at the end. Returns the number; 0 is the
    /// end.
    ///
    /// # Errors
    /// At the first bad record unless those are skipped, and if reading or decompressing fails.
    /// `out` has the references before it. An error ends the trace: the next call returns 0.
    pub fn read_block(&mut self, out: &mut Vec<u64>) -> Result<usize, TraceError> {
        out.clear();
        let done = self.fill(out);
        self.references += out.len() as u64;
        if let Err(error) = done {
            self.ended = true;
            return Err(self.error(error));
        }
        Ok(out.len())
    }

    fn fill(&mut self, out: &mut Vec<u64>) -> Result<(), BlockError> {
        while !self.ended {
            self.begin += self.parser.push(&self.buffer[self.begin..self.end], out)?;
            if self.begin < self.end {
                return Ok(());
            }
            self.begin = 0;
            self.end = self.source.read(&mut self.buffer)?;
            if self.end == 0 {
                self.ended = true;
                self.parser.finish(out)?;
            }
        }
        Ok(())
    }

    fn error(&self, error: BlockError) -> TraceError {
        let (name, references) = (self.name.clone(), self.references);
        match (error, self.source.compression()) {
            (BlockError::Fault(fault), _) => TraceError::Fault { name, fault, references },
            (BlockError::Read(source), Some(compression)) => {
                TraceError::Decompress { name, compression, references, source }
            }
            (BlockError::Read(source), None) => TraceError::Read { name, references, source },
        }
    }

    /// How much it has read.
    pub fn progress(&self) -> Progress {
        Progress {
            bytes_read: self.source.bytes_read(),
            bytes_total: self.bytes_total,
            references: self.references,
            skipped: self.parser.skipped(),
        }
    }

    /// The format of the trace.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How the trace is compressed; `None` if it is not.
    pub fn compression(&self) -> Option<Compression> {
        self.source.compression()
    }
}

/// Why a block was not finished.
enum BlockError {
    Fault(Fault),
    Read(io::Error),
}

impl From<Fault> for BlockError {
    fn from(fault: Fault) -> BlockError {
        BlockError::Fault(fault)
    }
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> BlockError {
        BlockError::Read(error)
    }
}
