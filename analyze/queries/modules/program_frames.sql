-- Frames of stacks in dumps: which are the program's, and how they are shown.

-- @macro is_own_frame(file)  whether a frame is not of an installed package, Python's library or the recorder.
CREATE MACRO is_own_frame(file) AS NOT regexp_matches(
    file, '[/\\](site-packages|dist-packages|lib[/\\]python3|collect[/\\]injected)'
);

-- @macro frame_text(file, line, function)  a frame as FILE:LINE FUNCTION.
CREATE MACRO frame_text(file, line, function) AS
    concat(parse_filename(file), CASE WHEN line > 0 THEN ':' || line END, ' ', function);
