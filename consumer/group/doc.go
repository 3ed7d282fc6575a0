// Package group is the coordinator of consumer groups.
package group
