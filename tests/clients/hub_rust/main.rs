//! Upload 20 MiB and a small file, download both, and compare. `HF_ENDPOINT` and `HF_TOKEN` name the service.

use hf_hub::repository::{AddSource, RepoTypeModel};
use hf_hub::HFClientSync;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = HFClientSync::new()?;
    client.create_repository().repo_id("team/rust").repo_type(RepoTypeModel).send()?;
    let repository = client.model("team", "rust");
    let mut state = 1u64;
    let mut next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let large: Vec<u8> = (0..20 << 20).map(&mut next).collect();
    for (path, data) in [("large.bin", large), ("small.txt", b"small".to_vec())] {
        repository.upload_file().source(AddSource::bytes(data.clone())).path_in_repo(path).send()?;
        let got = repository.download_file_to_bytes().filename(path).send()?;
        if got[..] != data[..] {
            return Err(format!("{path}: other bytes came back").into());
        }
    }
    let listed = client.list_models().author("team").search("rus").send()?;
    if listed.iter().map(|each| each.id.as_str()).collect::<Vec<_>>() != ["team/rust"] {
        return Err(format!("other models are listed: {listed:?}").into());
    }
    let refused = repository.upload_file().source(AddSource::bytes("x")).path_in_repo("x").create_pr(true).send();
    match refused {
        Err(error) if error.to_string().contains("422") => Ok(()),
        other => Err(format!("a pull request was not refused: {other:?}").into()),
    }
}
