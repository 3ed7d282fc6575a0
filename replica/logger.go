package replica

import (
	"context"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger hands Raft's messages to a slog.Logger, one level lower than Raft
// gives them: an election is news, not a fault.
type raftLogger struct {
	hclog.Logger // answers what Raft never calls
	l            *slog.Logger
}

func newRaftLogger(l *slog.Logger) hclog.Logger {
	return raftLogger{Logger: hclog.NewNullLogger(), l: l}
}

func (r raftLogger) level(l hclog.Level) slog.Level {
	switch l {
	case hclog.Error:
		return slog.LevelWarn
	case hclog.Warn:
		return slog.LevelInfo
	case hclog.Info:
		return slog.LevelDebug
	default:
		return slog.LevelDebug - 4
	}
}

func (r raftLogger) is(l hclog.Level) bool { return r.l.Enabled(context.Background(), r.level(l)) }

// The methods of hclog.Logger that Raft calls.

func (r raftLogger) Log(l hclog.Level, msg string, args ...any) {
	r.l.Log(context.Background(), r.level(l), msg, args...)
}
func (r raftLogger) Trace(msg string, args ...any)  { r.Log(hclog.Trace, msg, args...) }
func (r raftLogger) Debug(msg string, args ...any)  { r.Log(hclog.Debug, msg, args...) }
func (r raftLogger) Info(msg string, args ...any)   { r.Log(hclog.Info, msg, args...) }
func (r raftLogger) Warn(msg string, args ...any)   { r.Log(hclog.Warn, msg, args...) }
func (r raftLogger) Error(msg string, args ...any)  { r.Log(hclog.Error, msg, args...) }
func (r raftLogger) IsTrace() bool                  { return r.is(hclog.Trace) }
func (r raftLogger) IsDebug() bool                  { return r.is(hclog.Debug) }
func (r raftLogger) IsInfo() bool                   { return r.is(hclog.Info) }
func (r raftLogger) IsWarn() bool                   { return r.is(hclog.Warn) }
func (r raftLogger) IsError() bool                  { return r.is(hclog.Error) }
func (r raftLogger) Named(string) hclog.Logger      { return r }
func (r raftLogger) ResetNamed(string) hclog.Logger { return r }
func (r raftLogger) With(args ...any) hclog.Logger {
	return raftLogger{Logger: r.Logger, l: r.l.With(args...)}
}
