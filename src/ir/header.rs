//! What a module says beside its computations.

use super::{ShapeId, Unknown};

/// Header attributes and tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// `replica_count`; 0 means not said.
    pub replica_count: i64,
    /// `num_partitions`; 0 means not said.
    pub num_partitions: i64,
    /// `input_output_alias`.
    pub input_output_alias: Vec<AliasEntry>,
    /// `buffer_donor`: parameter and index path.
    pub buffer_donor: Vec<(i64, Vec<i64>)>,
    /// `alias_passthrough_params`.
    pub alias_passthrough_params: bool,
    /// `entry_computation_layout`; `None` means "as the entry computation says".
    pub entry_layout: Option<EntryLayout>,
    /// `allow_spmd_sharding_propagation_to_parameters`.
    pub allow_spmd_propagation_to_parameters: Vec<bool>,
    /// `allow_spmd_sharding_propagation_to_output`.
    pub allow_spmd_propagation_to_output: Vec<bool>,
    /// `frontend_attributes`, sorted by key.
    pub frontend_attributes: Vec<(Box<str>, Box<str>)>,
    /// `origin_recovery_table={…}` as read.
    pub origin_recovery_table: Option<AsRead>,
    /// `debug_attributes={…}` as read.
    pub debug_attributes: Option<AsRead>,
    /// `backend_config=…`.
    pub backend_config: Option<Box<[u8]>>,
    /// The four tables.
    pub frames: StackFrames,
    /// Attributes unknown to this version: name and value as read.
    pub unknown_text: Vec<(Box<str>, Box<str>)>,
}

/// A thing that only one of the two forms can say, kept in that form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AsRead {
    /// The text of the value.
    Text(Box<str>),
    /// The encoded proto fields, tags included.
    Proto(Box<[u8]>),
}

/// One `{out}: (param, {idx}, may-alias)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AliasEntry {
    /// Index path in the output.
    pub output: Vec<i64>,
    /// Parameter number.
    pub parameter: i64,
    /// Index path in it.
    pub index: Vec<i64>,
    /// Whether it must alias.
    pub must: bool,
}

/// Shapes of the entry computation as the caller sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryLayout {
    /// Parameters.
    pub parameters: Vec<ShapeId>,
    /// Result.
    pub result: ShapeId,
}

/// The tables FileNames, FunctionNames, FileLocations and StackFrames; ids count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackFrames {
    /// Source files.
    pub files: Vec<Box<str>>,
    /// Functions.
    pub functions: Vec<Box<str>>,
    /// Places.
    pub locations: Vec<FileLocation>,
    /// Frames.
    pub frames: Vec<StackFrame>,
    /// Fields of a newer proto.
    pub unknown: Unknown,
}

impl StackFrames {
    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.functions.is_empty() && self.locations.is_empty() && self.frames.is_empty()
    }
    /// File and line of a frame (ids count from 1).
    pub fn place(&self, frame: i32) -> Option<(&str, i32)> {
        let row = |id: i32| usize::try_from(id).ok()?.checked_sub(1);
        let location = self.locations.get(row(self.frames.get(row(frame)?)?.location)?)?;
        Some((self.files.get(row(location.file)?)?, location.line))
    }
}

/// A place in a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named as in StackFrameIndexProto.FileLocation")]
pub struct FileLocation {
    pub file: i32,
    pub function: i32,
    pub line: i32,
    pub end_line: i32,
    pub column: i32,
    pub end_column: i32,
}

/// A frame: its place and its caller, by their ids as the proto holds them (0 is none).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named as in StackFrameIndexProto.StackFrame")]
pub struct StackFrame {
    pub location: i32,
    pub parent: i32,
}
