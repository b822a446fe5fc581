"""What a machine reports: its identity, its disk's model and the build, as JSON that reads back."""

from __future__ import annotations

import json

from worker.contract.build import build_hash
from worker.machine import macos
from worker.machine.probe import probe, read_ssd

NVME = """{"SPNVMeDataType" : [{"_name" : "Apple SSD Controller", "_items" : [
  {"_name" : "APPLE SSD AP1024Z", "device_model" : "APPLE SSD AP1024Z", "device_revision" : "561.100"}]}]}"""


def test_a_mac_s_disk_is_the_first_one_of_its_controller():
    assert macos.parse_ssd(NVME) == "APPLE SSD AP1024Z"
    assert read_ssd(lambda command: NVME if command == macos.NVME else None, system="Darwin") == "APPLE SSD AP1024Z"
    assert read_ssd(lambda _: None, system="Darwin") is None


def test_linux_names_its_first_nvme_disk_or_none(tmp_path):
    assert read_ssd(system="Linux", root=tmp_path) is None
    model = tmp_path / "sys/block/nvme0n1/device/model"
    model.parent.mkdir(parents=True)
    model.write_text("Samsung SSD 990  \n")
    assert read_ssd(system="Linux", root=tmp_path) == "Samsung SSD 990"


def test_this_machine_s_report_is_json_with_the_build():
    report = json.loads(json.dumps(probe()))
    assert report["build_hash"] == build_hash()
    assert report["memory_bytes"] > 0
    assert {"chip", "gpu_cores", "os_version", "ssd", "mlx_version"} <= set(report)
