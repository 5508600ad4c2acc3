//! Pipelines as text: `fit{max-chain=8},dce`. Parses and prints back.

use std::fmt;

/// Named steps with their options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// In order.
    pub stages: Vec<Stage>,
}

/// One step by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The pass.
    pub name: String,
    /// `key=value` pairs, in the order in which they were written.
    pub options: Vec<(String, String)>,
}

/// What is wrong with a pipeline's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineError(pub String);

impl fmt::Display for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PipelineError {}

impl std::str::FromStr for Pipeline {
    type Err = PipelineError;

    fn from_str(text: &str) -> Result<Self, PipelineError> {
        let mut stages = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let end = rest.find(['{', ',']).unwrap_or(rest.len());
            let name = rest[..end].trim();
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                return Err(PipelineError(format!("expected the name of a pass, found `{name}`")));
            }
            let mut options = Vec::new();
            rest = rest[end..].trim_start();
            if let Some(inside) = rest.strip_prefix('{') {
                let close = inside.find('}').ok_or_else(|| PipelineError(format!("expected `}}` after the options of `{name}`")))?;
                for option in inside[..close].split(',').map(str::trim).filter(|o| !o.is_empty()) {
                    let (key, value) = option
                        .split_once('=')
                        .ok_or_else(|| PipelineError(format!("expected `key=value` in the options of `{name}`, found `{option}`")))?;
                    options.push((key.trim().to_owned(), value.trim().to_owned()));
                }
                rest = inside[close + 1..].trim_start();
            }
            stages.push(Stage { name: name.to_owned(), options });
            rest = match rest.strip_prefix(',') {
                Some(after) if !after.trim().is_empty() => after.trim_start(),
                Some(_) => return Err(PipelineError("expected the name of a pass after `,`".to_owned())),
                None if rest.is_empty() => rest,
                None => return Err(PipelineError(format!("expected `,` before `{rest}`"))),
            };
        }
        Ok(Self { stages })
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, stage) in self.stages.iter().enumerate() {
            let options: Vec<String> = stage.options.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let comma = if n > 0 { "," } else { "" };
            let options = if options.is_empty() { String::new() } else { format!("{{{}}}", options.join(",")) };
            write!(f, "{comma}{}{options}", stage.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_parse_and_print_back() {
        for text in ["", "dce", "fit,dce", "fit{offload=false,recompute=true},dce"] {
            assert_eq!(text.parse::<Pipeline>().map(|p| p.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(" fit { a = 1 } , dce ".parse::<Pipeline>().map(|p| p.to_string()), Ok("fit{a=1},dce".to_owned()));
        for text in [",", "fit,", "fit{a", "fit{a}", "fit dce", "f!t"] {
            assert!(text.parse::<Pipeline>().is_err(), "{text}");
        }
    }
}
