package console

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"zabor"
	"zabor/card"
	"zabor/internal/exit"
)

// NewLog returns a logger to w. format is text or json; level is debug, info, warn or error.
// Card numbers are masked. Keys are text, durations in JSON are seconds, and empty fields are
// left out.
func NewLog(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // the command line has checked it
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: readable(format == "json")}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// readable returns what a field of a log becomes. Card numbers are masked: an error may
// quote the request to a database or a provider. Keys stay as they are.
func readable(json bool) func([]string, slog.Attr) slog.Attr {
	return func(_ []string, a slog.Attr) slog.Attr {
		var text string
		switch v := a.Value.Any().(type) {
		case string:
			text = v
		case error:
			text = v.Error()
		case zabor.State:
			text = string(v)
		case zabor.Key:
			if v == (zabor.Key{}) {
				return slog.Attr{}
			}
			return slog.String(a.Key, v.String())
		case time.Duration:
			v = v.Round(time.Millisecond)
			if json {
				return slog.Float64(a.Key, v.Seconds())
			}
			return slog.Duration(a.Key, v)
		default:
			return a
		}
		switch {
		case text == "":
			return slog.Attr{}
		case card.In(text):
			a.Value = slog.StringValue(card.Mask(text))
		}
		return a
	}
}

// Fault prints a panic on one line, with its place in the source, and returns the exit code.
func Fault(to io.Writer, version string, fault any) int {
	where := "an unknown place"
	frames := make([]uintptr, 64)
	list := runtime.CallersFrames(frames[:runtime.Callers(1, frames)])
	for panicked, more := false, true; more; {
		var frame runtime.Frame
		frame, more = list.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicked = true
		case panicked && !strings.HasPrefix(frame.Function, "runtime."):
			where, more = fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line), false
		}
	}
	text := card.Mask(strings.Join(strings.Fields(fmt.Sprint(fault)), " "))
	fmt.Fprintf(to, "zabor: error: this is a fault in zabor %s: %s (%s). Please report this line; CONTRIBUTING.md says where. Rows and messages are as they were saved: start the command again\n", version, text, where)
	return exit.OwnFault
}
