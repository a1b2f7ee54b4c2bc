package console

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"

	"zabor/card"
	"zabor/internal/exit"
)

// NewLog returns a logger to w. format is text or json; level is debug, info, warn or error.
// Card numbers are masked.
func NewLog(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // the command line has checked it
	options := &slog.HandlerOptions{Level: least, ReplaceAttr: withoutCards}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// withoutCards masks card numbers in a log: an error may quote the request to a database or
// a provider. Keys stay as they are.
func withoutCards(_ []string, a slog.Attr) slog.Attr {
	var text string
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	default:
		return a
	}
	if card.In(text) {
		a.Value = slog.StringValue(card.Mask(text))
	}
	return a
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
