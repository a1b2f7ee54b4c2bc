package serve

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"zabor"
	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/preflight"
	"zabor/provider"
	"zabor/tracing"
	"zabor/worker"
)

// startUp refuses a start at a risk to lose messages or to share them with other workers,
// and logs the state of queues and providers.
func (p *Process) startUp(ctx context.Context, file *config.Config, list []connect.Queue, acceptEviction bool) error {
	if err := preflight.File(p.Log, file, list); err != nil {
		return err
	}
	p.checkDescriptors(file.Lanes)
	for _, s := range list {
		depth, err := s.Depth(ctx)
		if err != nil {
			return exit.Unreachable(fmt.Errorf("queue %s: %w", s.Name(), err), "nothing was taken; is Redis up, and is its address right?")
		}
		if s.Reserve > config.LongestReserve {
			p.Log.Warn("a message whose worker was killed is handed to nobody before its reserve ends: were these milliseconds? The setting is in seconds", "queue", s.Name(), "reserve", s.Reserve)
		}
		p.Log.Info("queue", "name", s.Name(), "ready", depth.Ready, "reserved", depth.Reserved, "delayed", depth.Delayed, "reserve", s.Reserve)
		if err := preflight.Require(p.Log, s.Name(), preflight.Queue(ctx, file.Compiled(), s, acceptEviction)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		p.tellProvider(file, name)
	}
	return nil
}

// checkDescriptors warns if the process may not open enough files: a call has its own
// connection to the provider, and one more to each of database and queue.
func (p *Process) checkDescriptors(lanes int) {
	const beside = 64 // other open files of a process
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return // the calls themselves say what they lack
	}
	if wanted := uint64(3*lanes + beside); limit.Cur < wanted {
		p.Log.Warn("this process may open too few files for its lanes: calls will find no descriptors", "descriptors", limit.Cur, "wanted", wanted, "lanes", lanes, "fix", fmt.Sprintf("ulimit -n %d, or LimitNOFILE= in its unit; or fewer lanes", wanted))
	}
}

// tellProvider logs where a provider is called, and whether money moves there.
func (p *Process) tellProvider(file *config.Config, name string) {
	profile, _ := file.Profile(name)
	host := profile.BaseURL
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		host = u.Host
	}
	told := []any{"name", name, "host", host}
	if builtin, ok := provider.BuiltinNamed(file.Providers[name].Profile); ok {
		mode := "LIVE"
		if builtin.IsTest(file.Providers[name].Account, string(file.Providers[name].Secret)) {
			mode = "TEST"
		}
		told = append(told, "mode", mode)
	}
	p.Log.Info("provider", told...)
}

// SecondsToStop returns how long a stop can take: the longest call and its saving, the
// answer to the queue, alerts, and the last spans.
func SecondsToStop(file *config.Config) int {
	stop := longestCall(file) + zabor.SaveTimeout + worker.AnswerTimeout + alertsTime
	if wantsTraces(file) {
		stop += tracing.CloseTime
	}
	return int(stop / time.Second)
}

// longestCall returns the longest time of one call.
func longestCall(file *config.Config) time.Duration {
	longest := time.Duration(0)
	for _, s := range file.Compiled() {
		longest = max(longest, s.Timeout())
	}
	if file.Proxy != nil {
		for _, one := range file.Providers {
			longest = max(longest, one.Timeout)
		}
	}
	return longest
}
