//go:build !linux

package main

import "os"

func dataSync(f *os.File) error { return f.Sync() }
