package ctl

import "golang.org/x/sys/windows"

// Arguments are the program's path and its arguments, as a Windows user has meant them.
func Arguments() []string {
	return SplitCommandLine(windows.UTF16PtrToString(windows.GetCommandLine()))
}
