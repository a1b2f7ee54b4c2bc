package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"zabor/internal/config"
	"zabor/internal/connect"
	"zabor/internal/exit"
	"zabor/internal/preflight"
	"zabor/provider"
)

// startUp refuses what would lose messages or have them taken by two, before any is taken,
// and logs what an operator wants to see of a start.
func (p *proc) startUp(ctx context.Context, file *config.Config, list []connect.Queue, acceptEviction bool) error {
	if err := preflight.File(p.log, file, list); err != nil {
		return err
	}
	for _, s := range list {
		depth, err := s.Depth(ctx)
		if err != nil {
			return exit.Unreachable(fmt.Errorf("queue %s: %w", s.Name(), err), "nothing was taken; is Redis up, and is its address right?")
		}
		if s.Reserve > config.LongestReserve {
			p.log.Warn("a message whose worker was killed is handed to nobody before its reserve ends: were these milliseconds? The setting is in seconds", "queue", s.Name(), "reserve", s.Reserve)
		}
		p.log.Info("queue", "name", s.Name(), "ready", depth.Ready, "reserved", depth.Reserved, "delayed", depth.Delayed, "reserve", s.Reserve)
		if err := preflight.Require(p.log, s.Name(), preflight.Queue(ctx, s, acceptEviction)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(file.Providers)) {
		p.tellProvider(file, name)
	}
	return nil
}

// tellProvider says who is going to be called, and whether money moves there.
func (p *proc) tellProvider(file *config.Config, name string) {
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
	p.log.Info("provider", told...)
}
