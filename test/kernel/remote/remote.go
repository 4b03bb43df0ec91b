// SPDX-License-Identifier: Apache-2.0

// Package remote gives the processes of a test the cgroups of a hierarchy in another
// process, through a socket. As with a kernel, an operation whose process dies is taken
// whole or not at all, and an operation that blocks keeps no other from returning.
package remote

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/rpc"
	"slices"
	"syscall"

	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/cgroups"
	"github.com/dra-driver-cpumem/dra-driver-cpumem/nri-actuator/kerneltest/mounted"
)

// Call is an operation, with up to two arguments after the cgroup.
type Call struct {
	Kind     kind
	Dir      string
	Name     string
	Argument string
}

type kind int

const (
	openDir kind = iota
	mkdir
	remove
	children
	read
	write
	attributes
	attribute
	setAttribute
	removeAttribute
)

// Reply is an operation's result. The error of a system call is Errno.
type Reply struct {
	Look    mounted.Look
	Content []byte
	Names   []string
	Errno   syscall.Errno
	Error   string
}

// Serve answers all connections of l until l is closed.
func Serve(l net.Listener, h mounted.Hierarchy) error {
	server := rpc.NewServer()
	if err := server.RegisterName("Hierarchy", &service{h}); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(conn)
		}
	}()
	return nil
}

type service struct{ hierarchy mounted.Hierarchy }

// Do takes an operation.
func (s *service) Do(c Call, r *Reply) error {
	if err := s.do(c, r); err != nil && !errors.As(err, &r.Errno) {
		r.Error = err.Error()
	}
	return nil
}

func (s *service) do(c Call, r *Reply) (err error) {
	switch c.Kind {
	case mkdir:
		return s.hierarchy.Mkdir(c.Dir)
	case remove:
		return s.hierarchy.Remove(c.Dir)
	case openDir:
		r.Look, err = s.hierarchy.Look(c.Dir)
		return err
	}
	cgroup, err := s.hierarchy.Open(c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cgroup.Close()) }()
	switch c.Kind {
	case children:
		r.Names, err = cgroup.Children()
	case read:
		r.Content, err = cgroup.Read(c.Name)
	case write:
		err = cgroup.Write(c.Name, c.Argument)
	case attributes:
		r.Names, err = cgroup.Attributes()
	case attribute:
		var value string
		value, err = cgroup.Attribute(c.Name)
		r.Content = []byte(value)
	case setAttribute:
		err = cgroup.SetAttribute(c.Name, c.Argument)
	case removeAttribute:
		err = cgroup.RemoveAttribute(c.Name)
	default:
		err = fmt.Errorf("unknown operation %d", c.Kind)
	}
	return err
}

// Dial connects to the hierarchy that is served at the socket.
func Dial(socket string) (cgroups.Hierarchy, error) {
	client, err := rpc.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	return hierarchy{client}, nil
}

// Open returns the mount of the hierarchy that is served at the socket.
func Open(socket string) (*cgroups.Mount, error) {
	h, err := Dial(socket)
	if err != nil {
		return nil, err
	}
	return cgroups.NewMount(h), nil
}

type hierarchy struct{ *rpc.Client }

func (h hierarchy) call(c Call) (Reply, error) {
	var r Reply
	switch err := h.Call("Hierarchy.Do", c, &r); {
	case err != nil:
		return r, err
	case r.Errno != 0:
		return r, r.Errno
	case r.Error != "":
		return r, errors.New(r.Error)
	}
	return r, nil
}

func (h hierarchy) do(c Call) error {
	_, err := h.call(c)
	return err
}

func (h hierarchy) Open(dir string) (cgroups.Cgroup, error) {
	r, err := h.call(Call{Kind: openDir, Dir: dir})
	if err != nil {
		return nil, err
	}
	return &cgroup{h, dir, &r.Look}, nil
}

func (h hierarchy) Mkdir(dir string) error  { return h.do(Call{Kind: mkdir, Dir: dir}) }
func (h hierarchy) Remove(dir string) error { return h.do(Call{Kind: remove, Dir: dir}) }

// cgroup is an open cgroup. On a busy machine an operation through the socket takes long,
// so the reads that follow the opening have what the cgroup had then.
type cgroup struct {
	hierarchy hierarchy
	dir       string
	// opened is nil after a write.
	opened *mounted.Look
}

func (c *cgroup) write(o Call) error {
	c.opened = nil
	return c.hierarchy.do(o)
}

func (c *cgroup) Children() ([]string, error) {
	r, err := c.hierarchy.call(Call{Kind: children, Dir: c.dir})
	return r.Names, err
}

func (c *cgroup) Read(file string) ([]byte, error) {
	if c.opened != nil {
		if content, read := c.opened.Files[file]; read {
			return []byte(content), nil
		}
	}
	r, err := c.hierarchy.call(Call{Kind: read, Dir: c.dir, Name: file})
	return r.Content, err
}

// OpenFile returns a file whose reads are by name.
func (c *cgroup) OpenFile(name string) (cgroups.File, error) {
	if _, err := c.Read(name); err != nil {
		return nil, err
	}
	return file{c.hierarchy, c.dir, name}, nil
}

type file struct {
	hierarchy hierarchy
	dir, name string
}

func (f file) Read([]byte) ([]byte, error) {
	r, err := f.hierarchy.call(Call{Kind: read, Dir: f.dir, Name: f.name})
	return r.Content, err
}

func (file) Close() error { return nil }

func (c *cgroup) Write(file, content string) error {
	return c.write(Call{Kind: write, Dir: c.dir, Name: file, Argument: content})
}

func (c *cgroup) Attributes() ([]string, error) {
	if c.opened != nil {
		return slices.Sorted(maps.Keys(c.opened.Attributes)), nil
	}
	r, err := c.hierarchy.call(Call{Kind: attributes, Dir: c.dir})
	return r.Names, err
}

func (c *cgroup) Attribute(name string) (string, error) {
	if c.opened != nil {
		value, found := c.opened.Attributes[name]
		if !found {
			return "", syscall.ENODATA
		}
		return value, nil
	}
	r, err := c.hierarchy.call(Call{Kind: attribute, Dir: c.dir, Name: name})
	return string(r.Content), err
}

func (c *cgroup) SetAttribute(name, value string) error {
	return c.write(Call{Kind: setAttribute, Dir: c.dir, Name: name, Argument: value})
}

func (c *cgroup) RemoveAttribute(name string) error {
	if c.opened != nil {
		if _, found := c.opened.Attributes[name]; !found {
			return syscall.ENODATA
		}
	}
	return c.write(Call{Kind: removeAttribute, Dir: c.dir, Name: name})
}

func (*cgroup) Close() error { return nil }
