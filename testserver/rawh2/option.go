// Copyright 2026 The grpcretry Authors
// SPDX-License-Identifier: Apache-2.0

package rawh2

import (
	"fmt"

	"golang.org/x/net/http2"
)

// Option changes how a server listens and greets its clients.
type Option interface {
	apply(cfg *config) error
}

type config struct {
	bufconn    bool
	blackHoles int
	settings   []http2.Setting
}

type optionFunc func(cfg *config) error

func (f optionFunc) apply(cfg *config) error { return f(cfg) }

// Bufconn makes the server listen in memory instead of on a loopback TCP port,
// as tests inside a testing/synctest bubble need it. Such a server is reached
// only through [Server.Dial] or the options of [Server.DialOptions].
func Bufconn() Option {
	return optionFunc(func(cfg *config) error {
		cfg.bufconn = true
		return nil
	})
}

// Setting adds a parameter to the SETTINGS that the server sends first on each
// connection, for example [http2.SettingMaxConcurrentStreams] or
// [http2.SettingMaxHeaderListSize]. The value is sent as it is, valid or not.
// By default the SETTINGS are empty. The server does not enforce its settings.
func Setting(id http2.SettingID, value uint32) Option {
	return optionFunc(func(cfg *config) error {
		cfg.settings = append(cfg.settings, http2.Setting{ID: id, Val: value})
		return nil
	})
}

// BlackHole makes the server accept its first connections, as many as given,
// without ever saying a word on them, so that the client's HTTP/2 handshake
// does not end. Use [math.MaxInt] for all connections. The default is 0.
func BlackHole(connections int) Option {
	return optionFunc(func(cfg *config) error {
		if connections < 0 {
			return fmt.Errorf("BlackHole: number of connections is negative: %d", connections)
		}
		cfg.blackHoles = connections
		return nil
	})
}
