//! From the IR to HLO text, in the style of XLA's own printer.
//!
//! Reading what is printed gives the same IR, so the printer departs from XLA's where that one says something else than the module
//! ([`PrintOptions::as_xla`] prints even those as XLA does, to compare):
//!
//! * constants are printed whole, also in tuples (XLA: `{...}`), negative zero as `-0.0` (XLA: `-0`, which its parser takes for 0), and
//!   numbers of narrow types with as many digits as it takes to tell them apart;
//! * computations stand before their callers;
//! * an asynchronous operation is written as `negate-start` only if the parser makes the same wrapped computation of it (see
//!   [`mod@super::print_async`]), else as `async-start` with `calls=`;
//! * shardings and statistics keep all that they say.
//!
//! Cost: linear in the text.

use super::print_async::{self, Sugar};
use super::print_attr::{Item, braced, common, frontend_attributes};
use super::print_op;
use super::print_quote::{Name, json_or_quoted, quoted};
use super::print_shape::{entry_layout, shape};
use crate::ir::{AsRead, CompId, Computation, InstrId, Module, StackFrames};

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintOptions {
    /// As XLA does, even where its parser then reads something else (see the module's documentation).
    pub as_xla: bool,
    /// Constants of more than ten elements as `{...}`, for people to read: their data are lost.
    pub elide_constants: bool,
}

/// The text of a module, complete and readable again.
pub fn print(module: &Module) -> String {
    print_with(module, PrintOptions::default())
}

/// The text of a module.
pub fn print_with(module: &Module, options: PrintOptions) -> String {
    let mut p = Printer { out: String::new(), module, options, sugar: print_async::sugar(module, options) };
    p.header();
    for comp in module.callees_first() {
        if !p.sugar.hidden.contains(&comp) {
            p.out.push('\n');
            p.computation(comp);
        }
    }
    p.out.push('\n');
    p.out
}

/// The text of one instruction, without `ROOT`, as it stands in the module's text.
pub fn print_instruction(module: &Module, instr: InstrId) -> String {
    let options = PrintOptions { elide_constants: true, ..PrintOptions::default() };
    let mut p = Printer { out: String::new(), module, options, sugar: Sugar::default() };
    p.instruction(instr);
    p.out
}

/// The text of a shape with its layout.
pub fn print_shape(module: &Module, id: crate::ir::ShapeId) -> String {
    let mut out = String::new();
    shape(&mut out, &module.shapes, id, true);
    out
}

/// A text in the making.
pub(super) struct Printer<'m> {
    pub out: String,
    pub module: &'m Module,
    pub options: PrintOptions,
    pub sugar: Sugar,
}

impl Printer<'_> {
    /// Appends formatted text.
    pub fn put(&mut self, args: std::fmt::Arguments<'_>) {
        use std::fmt::Write as _;
        self.out.write_fmt(args).expect("a string takes all");
    }

    fn header(&mut self) {
        let (module, header) = (self.module, &self.module.header);
        self.put(format_args!("HloModule {}", module.name));
        if module.is_scheduled {
            self.out.push_str(", is_scheduled=true");
        }
        if !header.input_output_alias.is_empty() {
            let entries = header.input_output_alias.iter().map(|e| {
                let kind = if e.must { "must-alias" } else { "may-alias" };
                format!("{}: ({}, {}, {kind})", braced(&e.output, ", "), e.parameter, braced(&e.index, ", "))
            });
            let entries: Vec<String> = entries.collect();
            self.put(format_args!(", input_output_alias={{ {} }}", entries.join(", ")));
        }
        if !header.buffer_donor.is_empty() {
            let entries: Vec<String> = header.buffer_donor.iter().map(|(p, index)| format!("({p}, {})", braced(index, ", "))).collect();
            self.put(format_args!(", buffer_donor={{ {} }}", entries.join(", ")));
        }
        if header.alias_passthrough_params {
            self.out.push_str(", alias_passthrough_params=true");
        }
        let (parameters, result) = module.entry_shapes();
        self.out.push_str(", entry_computation_layout=");
        entry_layout(&mut self.out, &module.shapes, &parameters, result);
        for (name, flags) in [
            ("allow_spmd_sharding_propagation_to_parameters", &header.allow_spmd_propagation_to_parameters),
            ("allow_spmd_sharding_propagation_to_output", &header.allow_spmd_propagation_to_output),
        ] {
            if !flags.is_empty() {
                self.put(format_args!(", {name}={}", braced(flags, ",")));
            }
        }
        for (name, count) in [("replica_count", header.replica_count), ("num_partitions", header.num_partitions)] {
            if count > 1 || count == 1 && !self.options.as_xla {
                self.put(format_args!(", {name}={count}"));
            }
        }
        let mut attributes = String::new();
        frontend_attributes(&mut attributes, &header.frontend_attributes);
        self.out.push_str(&attributes);
        if let Some(AsRead::Text(text)) = &header.origin_recovery_table {
            self.put(format_args!(", origin_recovery_table={text}"));
        }
        if let Some(AsRead::Text(text)) = &header.debug_attributes {
            self.put(format_args!(",\ndebug_attributes={text}"));
        }
        if let Some(config) = &header.backend_config {
            self.out.push_str(", backend_config=");
            json_or_quoted(&mut self.out, config);
        }
        for (name, value) in &header.unknown_text {
            self.put(format_args!(", {name}={value}"));
        }
        self.out.push('\n');
        self.frames(&header.frames);
    }

    fn frames(&mut self, frames: &StackFrames) {
        if frames.is_empty() {
            return;
        }
        for (title, names) in [("FileNames", &frames.files), ("FunctionNames", &frames.functions)] {
            self.put(format_args!("\n{title}\n"));
            for (number, name) in (1..).zip(names) {
                self.put(format_args!("{number} "));
                quoted(&mut self.out, name.as_bytes());
                self.out.push('\n');
            }
        }
        self.out.push_str("\nFileLocations\n");
        for (number, l) in (1..).zip(&frames.locations) {
            self.put(format_args!(
                "{number} {{file_name_id={} function_name_id={} line={} end_line={} column={} end_column={}}}\n",
                l.file, l.function, l.line, l.end_line, l.column, l.end_column
            ));
        }
        self.out.push_str("\nStackFrames\n");
        for (number, f) in (1..).zip(&frames.frames) {
            // Text counts the parents from 1 where the proto counts from 0.
            self.put(format_args!("{number} {{file_location_id={} parent_frame_id={}}}\n", f.location, f.parent.wrapping_add(1)));
        }
        self.out.push('\n');
    }

    fn computation(&mut self, id: CompId) {
        let comp = self.module.comp(id);
        if self.module.entry == Some(id) {
            self.out.push_str("ENTRY ");
        }
        self.put(format_args!("{} (", Name(&comp.name)));
        self.signature(comp);
        self.out.push_str(" {\n");
        for &instr in &comp.order {
            self.out.push_str(if instr == comp.root { "  ROOT " } else { "  " });
            self.instruction(instr);
            self.out.push('\n');
        }
        self.out.push('}');
        if let Some(thread) = &comp.thread {
            self.out.push_str(", execution_thread=");
            quoted(&mut self.out, thread.as_bytes());
        }
        if let Some(config) = &comp.backend_config {
            self.out.push_str(", backend_config=");
            json_or_quoted(&mut self.out, config);
        }
        self.out.push('\n');
    }

    fn signature(&mut self, comp: &Computation) {
        for (i, &parameter) in comp.parameters.iter().enumerate() {
            let instr = self.module.instr(parameter);
            self.put(format_args!("{}{}: ", if i == 0 { "" } else { ", " }, instr.name));
            shape(&mut self.out, &self.module.shapes, instr.shape, false);
        }
        self.out.push_str(") -> ");
        shape(&mut self.out, &self.module.shapes, self.module.instr(comp.root).shape, false);
    }

    fn instruction(&mut self, id: InstrId) {
        let module = self.module;
        let instr = module.instr(id);
        self.put(format_args!("{} = ", Name(&instr.name)));
        shape(&mut self.out, &module.shapes, instr.shape, true);
        let sugared = self.sugar.of(module, id);
        match &sugared {
            Some((root, suffix)) => {
                let opcode = module.instr(*root).op.opcode();
                self.put(format_args!(" {opcode}-{suffix}("));
            }
            None => self.put(format_args!(" {}(", instr.op.opcode())),
        }
        print_op::operands(self, instr);
        self.out.push(')');
        print_op::attributes(self, instr, sugared.map(|(root, _)| root));
        let item = Item { attrs: &instr.attrs, faithful: !self.options.as_xla };
        let preds: Vec<Name<'_>> = instr.control_predecessors.iter().map(|&p| Name(&module.instr(p).name)).collect();
        common(&mut self.out, &item, &preds);
    }
}
