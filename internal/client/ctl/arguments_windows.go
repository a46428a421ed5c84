package ctl

import "golang.org/x/sys/windows"

// Arguments are the program's path and its arguments, by the rules of Windows.
func Arguments() []string {
	return SplitCommandLine(windows.UTF16PtrToString(windows.GetCommandLine()))
}
